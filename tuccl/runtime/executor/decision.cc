#include "decision.h"

#include "byte_counts.h"

#include <algorithm>
#include <cstddef>

namespace tuccl {

bool Decision::add(uint32_t operation, const Rule &rule) {
    Ranges &ranges = of_operation_[operation];
    if (rule.min_bytes > rule.max_bytes ||
        (!ranges.rules.empty() && rule.min_bytes <= ranges.rules.back().max_bytes))
        return false;
    ranges.min_bytes.push_back(rule.min_bytes);
    ranges.rules.push_back(rule);
    return true;
}

void Decision::remove(uint32_t operation, uint64_t bytes) {
    const Rule *rule = find(operation, bytes);
    if (rule == nullptr)
        return;
    Ranges &ranges = of_operation_[operation];
    const std::ptrdiff_t place = rule - ranges.rules.data();
    ranges.min_bytes.erase(ranges.min_bytes.begin() + place);
    ranges.rules.erase(ranges.rules.begin() + place);
}

const Rule *Decision::find(uint32_t operation, uint64_t bytes) const {
    const Ranges &ranges = of_operation_[operation];
    // The last range that starts at or below `bytes`, without a branch that depends on the data.
    const uint64_t *base = ranges.min_bytes.data();
    size_t left = ranges.min_bytes.size();
    while (left > 1) {
        const size_t half = left / 2;
        base += base[half] <= bytes ? half : 0;
        left -= half;
    }
    if (left == 0 || *base > bytes)
        return nullptr;
    const Rule *rule = &ranges.rules[static_cast<size_t>(base - ranges.min_bytes.data())];
    return bytes <= rule->max_bytes ? rule : nullptr;
}

size_t Decision::rule_count() const {
    size_t count = 0;
    for (const Ranges &ranges : of_operation_)
        count += ranges.rules.size();
    return count;
}

void Decision::add_runner_up(uint32_t operation, const Rule &rule) {
    of_operation_[operation].runners_up.push_back(rule);
}

bool Decision::has_runners_up() const {
    return std::any_of(of_operation_.begin(), of_operation_.end(),
                       [](const Ranges &ranges) { return !ranges.runners_up.empty(); });
}

std::optional<uint64_t> table_bytes(uint32_t operation, uint32_t type, size_t count,
                                    uint32_t ranks) {
    if (type >= TUCCL_TYPES || operation >= kOperations)
        return std::nullopt;
    const uint32_t parts = tuccl_is_divided(operation) ? ranks : 1;
    uint64_t bytes;
    if (__builtin_mul_overflow(count, type_bytes(type) * parts, &bytes))
        return std::nullopt;
    return bytes;
}

} // namespace tuccl
