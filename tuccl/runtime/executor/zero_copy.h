/* all_gather and alltoall of large messages without staging: ranks write into the receive buffers
 * of the others, whose allocations they open through CUDA's IPC.
 *
 * No host waits for another one. A call tells the others on the device in which allocation its
 * receive buffer lies, and with which handle that can be opened. A rank that knows the allocation
 * writes there; one that does not sends this call through slots of the staging area, and asks its
 * host to open the allocation for later calls. Each pair of ranks goes its own way, so nothing has
 * to be agreed, and a captured call is nothing special: what a graph's first launch asks for, its
 * next one finds. */
#ifndef TUCCL_EXECUTOR_ZERO_COPY_H
#define TUCCL_EXECUTOR_ZERO_COPY_H

#include "executor.h"

#include <cstddef>
#include <cstdint>

namespace tuccl {

constexpr uint32_t kMostZeroCopyBlocks = 128;
constexpr uint32_t kZeroCopySlots = 2; // Of the staging area, per source and block.
constexpr size_t kZeroCopySlotBytes = 16384;
constexpr uint32_t kMostMappings = 64; // Allocations of one rank that another one has opened.

constexpr uint32_t kMostGone = 64;
constexpr size_t kIpcHandleBytes = 64; // Of a cudaIpcMemHandle_t.

// Where a rank's receive buffer lies.
struct Place {
    uint64_t id;      // Of the allocation in its process, never used again; 0: cannot be shared.
    uint64_t address; // In its process.
    uint64_t offset;  // In the allocation.
    unsigned char handle[kIpcHandleBytes];
};
constexpr uint32_t kPlaceWords = sizeof(Place) / sizeof(uint64_t);
static_assert(kPlaceWords <= 32, "a warp tells it at once");

// What a rank is told by another one.
struct ZeroCopyMail {
    alignas(64) Place place;
    alignas(64) uint64_t told;  // The call whose place this is.
    alignas(64) uint64_t route; // Twice the call; 1 more if its data comes without slots.
    alignas(64) uint64_t ended; // The call that it has ended.
    // Allocations that it has freed since, by its host, in a ring.
    alignas(64) uint64_t gone[kMostGone];
    uint64_t gone_count;
};

// A rank's part of the staging area.
struct ZeroCopyArea {
    ZeroCopyMail mail[TUCCL_MAX_RANKS]; // By who writes it.
    uint64_t full[TUCCL_MAX_RANKS][kMostZeroCopyBlocks];
    uint64_t free[TUCCL_MAX_RANKS][kMostZeroCopyBlocks];
    char slots[TUCCL_MAX_RANKS][kMostZeroCopyBlocks][kZeroCopySlots][kZeroCopySlotBytes];
    // Its own.
    alignas(64) uint64_t calls; // That have ended.
    alignas(64) uint64_t routed;
    uint64_t to[TUCCL_MAX_RANKS]; // The others' receive buffers as this device sees them, or 0.
    alignas(64) uint32_t blocks_done;
};

// An allocation of another rank, as this device sees it; address 0 if it cannot be opened.
struct Mapping {
    uint64_t id;
    uint64_t address;
};

// What a kernel asks its host to open, in host memory.
struct Wanted {
    uint32_t asks;
    Place place;
};

struct ZeroCopyLaunch {
    ZeroCopyArea *area[TUCCL_MAX_RANKS]; // By rank, as this device sees it; its own included.
    const volatile uint32_t *abort;
    const Mapping *mappings; // kMostMappings of each rank.
    Wanted *wanted;          // By rank.
    Place place;
    const char *send;
    char *receive;
    size_t part;        // Bytes from a rank to a rank.
    size_t send_stride; // Between what goes to two ranks: 0 for all_gather.
    uint32_t rank;
    uint32_t ranks;
    uint32_t here; // A bit for each rank of this process, whose addresses are good as they are.
};

} // namespace tuccl

#endif
