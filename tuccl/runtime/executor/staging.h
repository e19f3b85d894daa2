/* Where patterns put their messages: the layout of a rank's staging area, and what a kernel is
 * given.
 *
 * A pattern's launch is an epoch. Epochs alternate between two halves of the area: a rank that is
 * in epoch e + 2 has finished e + 1, in which it heard from everybody, and everybody had finished
 * reading epoch e before they sent in e + 1, since a stream runs one kernel after the other. So no
 * message is overwritten before it is read, with no acknowledgement. It holds only for patterns in
 * which every rank hears from every other. */
#ifndef TUCCL_EXECUTOR_STAGING_H
#define TUCCL_EXECUTOR_STAGING_H

#include "executor.h"

#include <stddef.h>
#include <stdint.h>

namespace tuccl {

// Shared by all sources of one half and phase; each source has an equal part.
constexpr size_t kLlAreaBytes = size_t{4} << 20;
constexpr size_t kLl128AreaBytes = size_t{18} << 20;
constexpr uint32_t kPhases = 2;
constexpr size_t kPatternBytes = 2 * kPhases * (kLlAreaBytes + kLl128AreaBytes);

constexpr size_t kLlAreaFirst = 0;
constexpr size_t kLl128AreaFirst = 2 * kPhases * kLlAreaBytes;

// Bytes of one source in a half and phase of an area: whole lines of LL128.
constexpr uint32_t part_of(size_t area_bytes, uint32_t ranks) {
    return static_cast<uint32_t>(area_bytes / ranks / 512 * 512);
}

// Words of 8 bytes in device memory: the epoch, and far from it how many blocks are done.
constexpr uint32_t kDoneWord = 32;
constexpr size_t kCounterBytes = 512;

// What every kernel is given.
struct Peers {
    char *staging[TUCCL_MAX_RANKS]; // By rank, as this device sees it; its own included.
    uint64_t *counters;
    const volatile uint32_t *abort; // In host memory.
    uint32_t rank;
    uint32_t ranks;
    uint32_t ll_part; // Bytes of a source in one half and phase of an area: a division saved.
    uint32_t ll128_part;
};

} // namespace tuccl

#endif
