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
constexpr size_t kMostAreaBytes[TUCCL_PROTOCOLS] = {size_t{4} << 20, size_t{18} << 20, 0};
constexpr uint32_t kPhases = 2;

// Parts are whole lines of LL128.
constexpr uint32_t kPartGrain = 512;
constexpr uint32_t most_part(uint32_t protocol, uint32_t ranks) {
    return static_cast<uint32_t>(kMostAreaBytes[protocol] / ranks / kPartGrain * kPartGrain);
}

constexpr uint32_t kMostKernelRanks = TUCCL_PROGRAM_MOST_KERNEL_RANKS;

// Returns whether a call has its own kernel; all others use the interpreter.
inline bool has_pattern_kernel(uint32_t operation, uint32_t pattern, uint32_t protocol,
                               uint32_t ranks) {
    if ((protocol != TUCCL_LL && protocol != TUCCL_LL128) || ranks > kMostKernelRanks)
        return false;
    if (operation == TUCCL_ALL_REDUCE)
        return pattern == TUCCL_PATTERN_ONE_PHASE || pattern == TUCCL_PATTERN_TWO_PHASE;
    return pattern == TUCCL_PATTERN_DIRECT && tuccl_is_divided(operation) &&
           !tuccl_has_root(operation);
}

// Words of 8 bytes in device memory: the epoch, and far from it the number of finished blocks.
constexpr uint32_t kDoneWord = 32;
constexpr size_t kCounterBytes = 512;

// Common parameters of all kernels. Addresses come last, so that the parameters of few ranks lie
// close together.
struct Peers {
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
    char *staging[kMostKernelRanks]; // Of this rank and those after it, mapped on this device.
};

// The data that one launch moves. A block is one rank's part of all_gather's result or
// reduce_scatter's input; all_reduce has none.
struct Work {
    const char *send;
    char *receive;
    size_t stride;  // From one rank's block, or shard of all_reduce, to the next.
    uint32_t bytes; // Of a block; all of it for all_reduce.
    uint32_t type;
    uint32_t reduction;
};

// Bytes of a user's buffer that a thread reads or writes at once, at most.
constexpr uint32_t kLlPartBytes = 8;
constexpr uint32_t kLl128PartBytes = 16;

// Returns whether every part is complete or absent, and aligned: then the faster kernel for whole
// parts applies. Ranks may differ; both kernels write the same lines.
inline bool is_whole(const Work &work, uint32_t protocol) {
    const uint32_t part = protocol == TUCCL_LL ? kLlPartBytes : kLl128PartBytes;
    return (reinterpret_cast<uintptr_t>(work.send) | reinterpret_cast<uintptr_t>(work.receive) |
            work.stride | work.bytes) %
               part ==
           0;
}

} // namespace tuccl

#endif
