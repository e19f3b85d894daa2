#include "check_rule.h"

#include <algorithm>
#include <cmath>

namespace tuccl {

namespace {

constexpr std::ptrdiff_t kLeastSlower = 12;
constexpr float kMargin = 1.02F;
constexpr float kClearly = 1.5F;
constexpr float kLongCallUs = 50.0F;
constexpr float kStepsUs = 300.0F; // What the steps of a check cost beside its calls.

} // namespace

uint64_t check_size(uint64_t min_bytes, uint64_t max_bytes) {
    const double middle = std::sqrt(static_cast<double>(std::max<uint64_t>(min_bytes, 1)) *
                                    static_cast<double>(max_bytes));
    uint64_t below = 1;
    while (below <= UINT64_MAX / 4 && static_cast<double>(below * 2) <= middle)
        below *= 2;
    const bool takes_above = middle / static_cast<double>(below) > std::sqrt(2.0);
    const uint64_t near = takes_above ? 2 * below : below;
    const uint64_t far = takes_above ? below : 2 * below;
    for (const uint64_t size : {near, far})
        if (size >= min_bytes && size <= max_bytes)
            return size;
    return static_cast<uint64_t>(middle);
}

float urgency(float nccl_us) {
    return std::sqrt(nccl_us) / (kStepsUs + kCallsOfCheck * nccl_us);
}

CheckPairs::CheckPairs(const Times &in_order) {
    for (size_t i = 0; i + 1 < in_order.size(); i += 2) {
        const bool entry_first = is_entry(i);
        entry_us.push_back(in_order[entry_first ? i : i + 1]);
        nccl_us.push_back(in_order[entry_first ? i + 1 : i]);
        ratios.push_back(entry_us.back() / nccl_us.back());
    }
}

bool CheckPairs::entry_stays() const {
    return median_of(ratios) <= 1.0F;
}

bool CheckPairs::entry_loses_clearly() const {
    return median_of(nccl_us) >= kLongCallUs &&
           *std::min_element(ratios.begin(), ratios.end()) >= kClearly;
}

bool CheckPairs::entry_loses() const {
    const auto slower =
        std::count_if(ratios.begin(), ratios.end(), [](float ratio) { return ratio > 1.0F; });
    return slower >= kLeastSlower && median_of(ratios) > kMargin;
}

float median_of(Times values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

} // namespace tuccl
