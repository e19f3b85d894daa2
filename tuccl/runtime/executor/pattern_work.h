/* The data that one launch of a pattern's kernel moves, and the choice between its two kernels:
 * host code, and the layout that the kernels read. */
#ifndef TUCCL_EXECUTOR_PATTERN_WORK_H
#define TUCCL_EXECUTOR_PATTERN_WORK_H

#include "executor.h"

#include <stddef.h>
#include <stdint.h>

namespace tuccl {

// A block is one rank's part of all_gather's result or reduce_scatter's input; all_reduce has none.
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
