// The kernel of zero_copy.h. Ranks write to one peer after the other, beginning with the next, so
// that no two crowd before the same one.
#ifndef TUCCL_EXECUTOR_ZERO_COPY_CUH
#define TUCCL_EXECUTOR_ZERO_COPY_CUH

#include "zero_copy.h"

#ifdef __CUDACC__
#include "ll.cuh"
#else // The tests run it on host threads, each of them a warp.
#include "zero_copy_on_host.h"
#endif

namespace tuccl {

#ifdef __CUDACC__
constexpr uint32_t kWarp = 32;

__device__ __forceinline__ uint64_t load_acquire(const uint64_t *word) {
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

__device__ __forceinline__ void store_release(uint64_t *word, uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
#endif

// Until the word is at least this. False after an abort.
__device__ __forceinline__ bool await(const ZeroCopyLaunch &launch, const uint64_t *word,
                                      uint64_t value) {
    for (uint32_t polls = 1; load_acquire(word) < value; polls++)
        if (polls % kPollsPerLook == 0 && aborted(launch.abort))
            return false;
    return true;
}

// Where the same bytes go: a rank's receive buffer, and at first the own one.
struct Targets {
    char *at[2];
    uint32_t count;
};

template <typename Unit, int kUnroll>
__device__ __forceinline__ void store_units(char *to, const Unit (&data)[kUnroll], size_t unit,
                                            size_t step) {
#pragma unroll
    for (int i = 0; i < kUnroll; i++)
        reinterpret_cast<Unit *>(to)[unit + i * step] = data[i];
}

// By the threads `first`, `first + step` and so on.
template <typename Unit, int kUnroll>
__device__ __forceinline__ void copy_units(const Targets &to, const char *from, size_t offset,
                                           size_t units, size_t first, size_t step) {
    const auto *source = reinterpret_cast<const Unit *>(from + offset);
    size_t unit = first;
    for (; unit + (kUnroll - 1) * step < units; unit += kUnroll * step) {
        Unit data[kUnroll];
#pragma unroll
        for (int i = 0; i < kUnroll; i++)
            data[i] = source[unit + i * step];
        store_units<Unit, kUnroll>(to.at[0] + offset, data, unit, step);
        if (to.count == 2)
            store_units<Unit, kUnroll>(to.at[1] + offset, data, unit, step);
    }
    for (; unit < units; unit += step) {
        reinterpret_cast<Unit *>(to.at[0] + offset)[unit] = source[unit];
        if (to.count == 2)
            reinterpret_cast<Unit *>(to.at[1] + offset)[unit] = source[unit];
    }
}

// All addresses lie alike, once `head` bytes are done.
template <typename Unit>
__device__ __forceinline__ void copy_aligned(const Targets &to, const char *from, size_t bytes,
                                             size_t first, size_t step) {
    size_t head = -reinterpret_cast<uintptr_t>(from) % sizeof(Unit);
    head = head < bytes ? head : bytes;
    const size_t units = (bytes - head) / sizeof(Unit);
    const size_t tail = head + units * sizeof(Unit);
    copy_units<char, 1>(to, from, 0, head, first, step);
    copy_units<Unit, 4>(to, from, head, units, first, step);
    copy_units<char, 1>(to, from, tail, bytes - tail, first, step);
}

// Any addresses, with the widest accesses that they allow.
__device__ __forceinline__ void copy_bytes(const Targets &to, const char *from, size_t bytes,
                                           size_t first, size_t step) {
    uintptr_t apart = reinterpret_cast<uintptr_t>(to.at[0]) ^ reinterpret_cast<uintptr_t>(from);
    if (to.count == 2)
        apart |= reinterpret_cast<uintptr_t>(to.at[1]) ^ reinterpret_cast<uintptr_t>(from);
    if (apart % sizeof(uint4) == 0)
        copy_aligned<uint4>(to, from, bytes, first, step);
    else if (apart % sizeof(uint64_t) == 0)
        copy_aligned<uint64_t>(to, from, bytes, first, step);
    else if (apart % sizeof(uint32_t) == 0)
        copy_aligned<uint32_t>(to, from, bytes, first, step);
    else if (apart % sizeof(uint16_t) == 0)
        copy_aligned<uint16_t>(to, from, bytes, first, step);
    else
        copy_units<char, 4>(to, from, 0, bytes, first, step);
}

// By one block, and by all of a call.
__device__ __forceinline__ void copy_tile(char *to, const char *from, size_t bytes) {
    copy_bytes({{to, nullptr}, 1}, from, bytes, threadIdx.x, blockDim.x);
}
__device__ __forceinline__ void copy_part(const Targets &to, const char *from, size_t bytes) {
    copy_bytes(to, from, bytes, blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x,
               gridDim.x * static_cast<size_t>(blockDim.x));
}

__device__ __forceinline__ void ask_host(Wanted *wanted, const Place &place) {
    if (*static_cast<volatile uint32_t *>(&wanted->asks) != 0)
        return;
    const auto *words = reinterpret_cast<const uint64_t *>(&place);
    auto *there = reinterpret_cast<volatile uint64_t *>(&wanted->place);
    for (uint32_t i = 0; i < kPlaceWords; i++)
        there[i] = words[i];
    __threadfence_system();
    *static_cast<volatile uint32_t *>(&wanted->asks) = 1;
}

// By a warp: where this device sees the receive buffer of `peer`, 0 if it does not.
__device__ __forceinline__ uint64_t find_buffer(const ZeroCopyLaunch &launch, uint32_t peer,
                                                const Place &place) {
    if (place.id == 0)
        return 0;
    if ((launch.here >> peer & 1) != 0)
        return place.address;
    const uint32_t lane = threadIdx.x % kWarp;
    const volatile Mapping *mappings = launch.mappings + peer * kMostMappings;
    for (uint32_t first = 0; first < kMostMappings; first += kWarp) {
        const uint32_t found = __ballot_sync(0xFFFFFFFFU, mappings[first + lane].id == place.id);
        if (found == 0)
            continue;
        // The host writes the address first.
        __threadfence_system();
        const uint64_t address = mappings[first + __ffs(static_cast<int>(found)) - 1].address;
        return address == 0 ? 0 : address + place.offset;
    }
    if (lane == 0)
        ask_host(&launch.wanted[peer], place);
    return 0;
}

// By a warp for each peer: tells it where to write, hears where it wants to be written to, and
// tells it what way that will go. False after an abort.
__device__ __forceinline__ bool meet_peer(const ZeroCopyLaunch &launch, uint32_t peer,
                                          uint64_t number) {
    const uint32_t lane = threadIdx.x % kWarp;
    ZeroCopyArea *own = launch.area[launch.rank];
    ZeroCopyMail &there = launch.area[peer]->mail[launch.rank];
    for (uint32_t i = lane; i < kPlaceWords; i += kWarp)
        reinterpret_cast<volatile uint64_t *>(&there.place)[i] =
            reinterpret_cast<const uint64_t *>(&launch.place)[i];
    __syncwarp();
    if (lane == 0)
        store_release(&there.told, number);
    const bool heard = await(launch, &own->mail[peer].told, number);
    if (!__all_sync(0xFFFFFFFFU, heard))
        return false;
    const uint64_t to = find_buffer(launch, peer, own->mail[peer].place);
    if (lane == 0) {
        own->to[peer] = to;
        store_release(&there.route, 2 * number + (to != 0 ? 1 : 0));
    }
    return true;
}

// What the threads of a block share.
struct ZeroCopyBlock {
    uint64_t to[TUCCL_MAX_RANKS];
    bool receives[TUCCL_MAX_RANKS]; // By turn: others may still read that of the last one.
    bool last;
};

// Fills `block.to`; false after an abort.
__device__ __forceinline__ bool find_routes(const ZeroCopyLaunch &launch, uint64_t number,
                                            ZeroCopyBlock &block) {
    ZeroCopyArea *own = launch.area[launch.rank];
    const uint32_t warp = threadIdx.x / kWarp;
    bool goes_on = true;
    if (blockIdx.x == 0) {
        if (warp < launch.ranks && warp != launch.rank)
            goes_on = meet_peer(launch, warp, number);
        __threadfence();
        goes_on = __syncthreads_and(goes_on);
        if (goes_on && threadIdx.x == 0)
            store_release(&own->routed, number);
    } else {
        goes_on = __syncthreads_and(threadIdx.x != 0 || await(launch, &own->routed, number));
    }
    if (!goes_on)
        return false;
    if (threadIdx.x < launch.ranks)
        block.to[threadIdx.x] = load_acquire(&own->to[threadIdx.x]);
    __syncthreads();
    return true;
}

// A block's share of one part through the slots: what goes to one rank, and what comes from
// another.
struct SlotTurn {
    uint32_t to;
    uint32_t from;
    bool sends;
    bool receives;
};

__device__ __forceinline__ bool exchange_slots(const ZeroCopyLaunch &launch, uint64_t number,
                                               const SlotTurn &turn) {
    ZeroCopyArea *own = launch.area[launch.rank];
    ZeroCopyArea *there = launch.area[turn.to];
    const uint32_t block = blockIdx.x;
    // Numbers of this call only: slots are empty when it begins.
    uint64_t sent = number << 32;
    for (size_t offset = block * kZeroCopySlotBytes; offset < launch.part;
         offset += gridDim.x * kZeroCopySlotBytes, sent++) {
        const size_t left = launch.part - offset;
        const size_t bytes = left < kZeroCopySlotBytes ? left : kZeroCopySlotBytes;
        const uint32_t slot = sent % kZeroCopySlots;
        const bool waits = (sent & 0xFFFFFFFFU) >= kZeroCopySlots;
        bool goes_on = true;
        if (turn.sends && waits && threadIdx.x == 0)
            goes_on = await(launch, &own->free[turn.to][block], sent + 1 - kZeroCopySlots);
        if (!__syncthreads_and(goes_on))
            return false;
        if (turn.sends) {
            copy_tile(there->slots[launch.rank][block][slot],
                      launch.send + turn.to * launch.send_stride + offset, bytes);
            __syncthreads();
            if (threadIdx.x == 0)
                store_release(&there->full[launch.rank][block], sent + 1);
        }
        if (turn.receives && threadIdx.x == 0)
            goes_on = await(launch, &own->full[turn.from][block], sent + 1);
        if (!__syncthreads_and(goes_on))
            return false;
        if (turn.receives) {
            copy_tile(launch.receive + turn.from * launch.part + offset,
                      own->slots[turn.from][block][slot], bytes);
            __syncthreads();
            if (threadIdx.x == 0)
                store_release(&launch.area[turn.from]->free[launch.rank][block], sent + 1);
        }
    }
    return true;
}

// What a rank has for itself goes along with what it sends first, if that is the same.
__device__ __forceinline__ void push_part(const ZeroCopyLaunch &launch, uint32_t k, uint32_t to,
                                          uint64_t buffer) {
    const char *sent = launch.send + to * launch.send_stride;
    const char *own_sent = launch.send + launch.rank * launch.send_stride;
    char *own = launch.receive + launch.rank * launch.part;
    const bool has_own = k == 1 && own != own_sent;
    Targets targets = {{reinterpret_cast<char *>(buffer) + launch.rank * launch.part, own}, 1};
    if (buffer != 0 && has_own && launch.send_stride == 0)
        targets.count = 2;
    else if (has_own)
        copy_part({{own, nullptr}, 1}, own_sent, launch.part);
    if (buffer != 0)
        copy_part(targets, sent, launch.part);
}

// One turn: to the k-th rank after this one, from the k-th before it. False after an abort.
__device__ __forceinline__ bool take_turn(const ZeroCopyLaunch &launch, uint64_t number, uint32_t k,
                                          ZeroCopyBlock &block) {
    const uint32_t to = (launch.rank + k) % launch.ranks;
    const uint32_t from = (launch.rank + launch.ranks - k) % launch.ranks;
    const bool sends = block.to[to] == 0;
    push_part(launch, k, to, block.to[to]);
    bool goes_on = true;
    if (threadIdx.x == 0) {
        const uint64_t *route = &launch.area[launch.rank]->mail[from].route;
        goes_on = await(launch, route, 2 * number);
        block.receives[k] = load_acquire(route) == 2 * number;
    }
    if (!__syncthreads_and(goes_on))
        return false;
    const bool receives = block.receives[k];
    return (!sends && !receives) || exchange_slots(launch, number, {to, from, sends, receives});
}

// The last block to come here tells the others, and waits until all have ended: what they wrote is
// here then.
__device__ __forceinline__ void end_call(const ZeroCopyLaunch &launch, uint64_t number,
                                         ZeroCopyBlock &block) {
    ZeroCopyArea *own = launch.area[launch.rank];
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0)
        block.last = atomicInc(&own->blocks_done, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (!block.last)
        return;
    __threadfence_system();
    if (threadIdx.x < launch.ranks && threadIdx.x != launch.rank) {
        store_release(&launch.area[threadIdx.x]->mail[launch.rank].ended, number);
        (void)await(launch, &own->mail[threadIdx.x].ended, number);
    }
    if (threadIdx.x == 0)
        store_release(&own->calls, number);
}

__device__ __forceinline__ void run_zero_copy(const ZeroCopyLaunch &launch, ZeroCopyBlock &block) {
    const uint64_t number = load_acquire(&launch.area[launch.rank]->calls) + 1;
    bool goes_on = find_routes(launch, number, block);
    for (uint32_t k = 1; k < launch.ranks && goes_on; k++)
        goes_on = take_turn(launch, number, k, block);
    end_call(launch, number, block);
}

#ifdef __CUDACC__
__global__ void __launch_bounds__(1024) zero_copy(const __grid_constant__ ZeroCopyLaunch launch) {
    __shared__ ZeroCopyBlock block;
    run_zero_copy(launch, block);
}
#endif

} // namespace tuccl

#endif
