/* Staging areas of patterns: the layout of a rank's area, and kernel parameters.
 *
 * A pattern's launch is an epoch. Epochs alternate between two halves of the area: a rank in epoch
 * e + 2 has finished e + 1, in which it received from all ranks, and all ranks had finished reading
 * epoch e before they sent in e + 1, since a stream runs its kernels in order. So no message is
 * overwritten before it is read, without acknowledgements. This holds only for patterns in which
 * all ranks receive from all. */
#ifndef TUCCL_EXECUTOR_STAGING_H
#define TUCCL_EXECUTOR_STAGING_H

#include "executor.h"

#include <stddef.h>
#include <stdint.h>

namespace tuccl {

// An area holds the lines of all sources in one half and phase, each in an equal part. Largest
// area: longer messages are divided into several launches.
constexpr size_t kMostLlAreaBytes = size_t{4} << 20;
constexpr size_t kMostLl128AreaBytes = size_t{18} << 20;
constexpr uint32_t kPhases = 2;

// Parts are whole lines of LL128.
constexpr uint32_t kPartGrain = 512;
constexpr uint32_t most_part(size_t area_bytes, uint32_t ranks) {
    return static_cast<uint32_t>(area_bytes / ranks / kPartGrain * kPartGrain);
}

// Returns whether a call has its own kernel; all others use the interpreter.
inline bool has_pattern_kernel(uint32_t operation, uint32_t pattern, uint32_t protocol) {
    if (protocol != TUCCL_LL && protocol != TUCCL_LL128)
        return false;
    if (operation == TUCCL_ALL_REDUCE)
        return pattern == TUCCL_PATTERN_ONE_PHASE || pattern == TUCCL_PATTERN_TWO_PHASE;
    return pattern == TUCCL_PATTERN_DIRECT && tuccl_is_divided(operation) &&
           !tuccl_has_root(operation);
}

// Words of 8 bytes in device memory: the epoch, and far from it the number of finished blocks.
constexpr uint32_t kDoneWord = 32;
constexpr size_t kCounterBytes = 512;

// Common parameters of all kernels.
struct Peers {
    char *staging[TUCCL_MAX_RANKS]; // By rank, mapped on this device; its own included.
    uint64_t *counters;
    const volatile uint32_t *abort; // In host memory.
    uint32_t rank;
    uint32_t ranks;
    // Bytes of a source in an area, and of an area; first LL's, both halves of the first phase and
    // then of the second, then LL128's.
    uint32_t ll_part;
    uint32_t ll_area;
    uint32_t ll_phases;
    uint32_t ll128_first;
    uint32_t ll128_part;
    uint32_t ll128_area;
    uint32_t ll128_phases;
};

} // namespace tuccl

#endif
