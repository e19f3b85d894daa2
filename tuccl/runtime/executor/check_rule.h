// The rule of the check at start: at which size an entry is timed, in which order entries come, and
// when one loses.
#ifndef TUCCL_EXECUTOR_CHECK_RULE_H
#define TUCCL_EXECUTOR_CHECK_RULE_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tuccl {

using Times = std::vector<float>; // In us.

// The power of two in a range that is nearest to its middle, as tuned sizes are; without one the
// middle, which is that of logarithms.
uint64_t check_size(uint64_t min_bytes, uint64_t max_bytes);

// Calls that the check of an entry takes at least, for one that stays.
constexpr float kCallsOfCheck = 14.0F;

// The order: the largest comes first. A job makes small calls more often than large ones, so an
// entry counts by the square root of NCCL's time for its call, for the time that its check takes.
float urgency(float nccl_us);

// An entry stays if it is as fast as NCCL in the median of the first pairs, of single calls. It is
// out if it takes half as long again in each of them, of calls that are long beside their launch:
// 15 more would take most of the time that other entries need. Others are out if fresh pairs say
// so: slower in 12 of 15, which an entry that is as fast comes to in 1.8 % of cases, and by 2 % in
// the median. Not in all 15: where the host stalls a call of NCCL's, the entry of that pair is the
// faster one.
constexpr uint32_t kFirstCheckPairs = 5;
constexpr uint32_t kCheckPairs = 15;

// The times of an entry and of NCCL in turn.
struct CheckPairs {
    Times entry_us;
    Times nccl_us;
    Times ratios; // Above 1: the entry is slower.

    explicit CheckPairs(const Times &in_order);

    // Entry, NCCL, NCCL, entry, entry, ...: a drift harms neither.
    static bool is_entry(size_t place) {
        return (place / 2) % 2 == place % 2;
    }

    bool entry_stays() const;         // Of the first pairs.
    bool entry_loses_clearly() const; // Likewise.
    bool entry_loses() const;         // Of the others.
};

float median_of(Times values);

} // namespace tuccl

#endif
