// Patterns for small and medium messages: all ranks write to all their receivers at once, over
// NVLink. One kernel per call, no host, no barrier: a flag in each line marks its arrival.
//
// Each is written once for both protocols, over the ports of ports.cuh. The time of a small message
// is dominated by loads that wait for each other, and by instructions far apart.
//
// Kernels find staging areas in the order of ranks after this one, their own first: an index that
// is known when they are compiled.
#ifndef TUCCL_EXECUTOR_PATTERNS_CUH
#define TUCCL_EXECUTOR_PATTERNS_CUH

#include "ports.cuh"
#include "staging.h"
#include "words.cuh"

#include <cstddef>
#include <cstdint>

namespace tuccl {

// Loaded anew for each unit, and behind its data: a kernel that has the epoch from its beginning
// waits for it before it loads anything else.
__device__ __forceinline__ uint64_t next_epoch(const Peers &peers) {
    return *static_cast<volatile uint64_t *>(peers.counters) + 1;
}

// LL's flags are the low half of the epoch, and 2^32 small calls take only hours: a line not
// written since then would look new. So twice in a round, at the end of an epoch, its lines get a
// flag half a round ahead. No rank writes to them before this rank's next epoch has sent.
__device__ __forceinline__ void renew_flags(const Peers &peers, uint64_t epoch) {
    if ((epoch & 0x7FFFFFFEU) != 0 || epoch < 2)
        return;
    const uint32_t flag = (epoch & 0x80000000U) != 0 ? 0x40000000U : 0xC0000000U;
#pragma unroll 1
    for (uint32_t phase = 0; phase < peers.ll_phases; phase++) {
        uint4 *area = reinterpret_cast<uint4 *>(
            peers.staging[0] + LlPort<true>::area_of(peers, 2 * phase + epoch % 2));
#pragma unroll 1
        for (uint32_t i = 0; i < peers.ll_area / sizeof(uint4); i++)
            area[i] = make_uint4(flag, flag, flag, flag);
    }
}

// The last block ends the epoch; all blocks have read the epoch and its messages by then.
__device__ __forceinline__ void end_epoch(const Peers &peers, uint64_t epoch) {
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    if (epoch == 0) // No unit was this thread's.
        epoch = next_epoch(peers);
    uint32_t *done = reinterpret_cast<uint32_t *>(peers.counters + kDoneWord);
    if (gridDim.x != 1 && atomicInc(done, gridDim.x - 1) != gridDim.x - 1)
        return;
    *static_cast<volatile uint64_t *>(peers.counters) = epoch;
    renew_flags(peers, epoch);
}

// The lines that rank `from` sends to the `after`-th rank after this one, in one phase.
template <typename Port>
__device__ __forceinline__ char *lines_of(const Peers &peers, uint32_t after, uint32_t from,
                                          uint32_t phase, uint64_t epoch) {
    const uint32_t half = static_cast<uint32_t>(epoch) % 2;
    return peers.staging[after] +
           (Port::area_of(peers, 2 * phase + half) + from * Port::part_of(peers));
}

__device__ __forceinline__ bool is_aligned(const void *first, const void *second, size_t stride) {
    return (reinterpret_cast<uintptr_t>(first) | reinterpret_cast<uintptr_t>(second) | stride) %
               16 ==
           0;
}

// The k-th peer after this rank: each rank begins with a different peer, to spread the load.
__device__ __forceinline__ uint32_t peer_after(uint32_t rank, uint32_t k, uint32_t ranks) {
    const uint32_t peer = rank + k;
    return peer >= ranks ? peer - ranks : peer;
}

// Loops over ranks are unrolled, so that a thread's loads are under way together.
#define TUCCL_EACH_PEER(k)                                                                         \
    _Pragma("unroll") for (uint32_t k = 1; k < most_ranks<kRanks>();                               \
                           k++) if (is_exact<kRanks>() || k < ranks)
#define TUCCL_EACH_RANK(r)                                                                         \
    _Pragma("unroll") for (uint32_t r = 0; r < most_ranks<kRanks>();                               \
                           r++) if (is_exact<kRanks>() || r < ranks)

// Kernels are for a number of ranks that is known when they are compiled, or for up to so many.
constexpr uint32_t kUpTo = 1U << 16;

template <uint32_t kRanks> __host__ __device__ constexpr bool is_exact() {
    return kRanks < kUpTo;
}

template <uint32_t kRanks> __host__ __device__ constexpr uint32_t most_ranks() {
    return kRanks % kUpTo;
}

template <uint32_t kRanks> __device__ __forceinline__ uint32_t ranks_of(const Peers &peers) {
    return is_exact<kRanks>() ? kRanks : peers.ranks;
}

template <uint32_t kRanks> __host__ __device__ constexpr uint32_t most_others() {
    return most_ranks<kRanks>() - 1;
}

// The k-th peer in the order of ranks.
#define TUCCL_EACH_OTHER(k)                                                                        \
    _Pragma("unroll") for (uint32_t k = 0; k < most_others<kRanks>();                              \
                           k++) if (is_exact<kRanks>() || k + 1 < ranks)

__device__ __forceinline__ uint32_t peer_rank(uint32_t self, uint32_t k) {
    return k < self ? k : k + 1;
}

// Waits for the lines of all peers; reads all before it waits for any. Undefined after an abort.
template <typename Port, uint32_t kRanks>
__device__ __forceinline__ void receive_all(const Port &port, const Peers &peers, uint32_t phase,
                                            uint64_t epoch, uint32_t line,
                                            Part (&parts)[most_others<kRanks>()]) {
    const uint32_t ranks = ranks_of<kRanks>(peers);
    const char *lines[most_others<kRanks>()];
    TUCCL_EACH_OTHER(k) {
        lines[k] = lines_of<Port>(peers, 0, peer_rank(peers.rank, k), phase, epoch) + line;
    }
    for (uint32_t polls = 1;; polls++) {
        bool has_arrived = true;
        TUCCL_EACH_OTHER(k) {
            has_arrived &= port.peek(lines[k], epoch, &parts[k]);
        }
        if (Port::all(has_arrived))
            return;
        if (polls % kPollsPerLook == 0 && !Port::all(!aborted(peers.abort)))
            return;
    }
}

// A rank's part, received or own. By value: an index known only at run time would put all parts
// into local memory.
template <uint32_t kRanks>
__device__ __forceinline__ Part part_of(uint32_t rank, uint32_t self, Part own,
                                        const Part (&others)[most_others<kRanks>()]) {
    Part part = own;
    if (rank > 0 && rank > self)
        part = others[rank - 1];
    if (rank < most_others<kRanks>() && rank < self)
        part = others[rank];
    return part;
}

// The sum of all ranks' parts, in the order of ranks.
template <typename Port, typename Reduce, uint32_t kRanks>
__device__ __forceinline__ Part sum_of(const Work &work, const Peers &peers, Part own,
                                       const Part (&parts)[most_others<kRanks>()]) {
    const uint32_t ranks = ranks_of<kRanks>(peers);
    const Part first = part_of<kRanks>(0, peers.rank, own, parts);
    Reduce low(work.type, work.reduction);
    Reduce high(work.type, work.reduction);
    low.start(first.low);
    if (Port::kWords == 2)
        high.start(first.high);
    TUCCL_EACH_PEER(rank) {
        const Part part = part_of<kRanks>(rank, peers.rank, own, parts);
        low.add(part.low);
        if (Port::kWords == 2)
            high.add(part.high);
    }
    return {low.word(ranks), Port::kWords == 2 ? high.word(ranks) : 0};
}

// State at a kernel's start.
template <typename Port> struct Start {
    Port port;
    uint32_t units; // Of a block.
    bool aligned;

    __device__ __forceinline__ Start(const Work &work, uint32_t bytes, size_t stride)
        : units((bytes + Port::kUnitBytes - 1) / Port::kUnitBytes),
          aligned(is_aligned(work.send, work.receive, stride)) {
    }
};

// To the `after`-th rank after this one.
template <typename Port>
__device__ __forceinline__ void send_to(const Start<Port> &start, const Peers &peers,
                                        uint32_t after, uint32_t phase, uint64_t epoch,
                                        uint32_t line, Part part) {
    start.port.send(lines_of<Port>(peers, after, peers.rank, phase, epoch) + line, part, epoch);
}

// The blocks that a unit's parts lie in, of which a unit has at least one byte: equal ones of a
// gathered buffer.
struct Blocks {
    size_t stride;
    uint32_t bytes; // Of one.

    __device__ __forceinline__ size_t first(uint32_t rank) const {
        return rank * stride;
    }
    __device__ __forceinline__ uint32_t left(uint32_t, uint32_t offset) const {
        const uint32_t left = bytes - offset;
        __builtin_assume(left != 0);
        return left;
    }
};

// Shards of all_reduce's buffer: the last ones may be shorter, or empty.
struct Shards {
    uint32_t stride;
    uint32_t total; // Of all.

    __device__ __forceinline__ size_t first(uint32_t rank) const {
        return rank * stride;
    }
    __device__ __forceinline__ uint32_t left(uint32_t rank, uint32_t offset) const {
        const uint32_t remaining = left_of(total, rank * stride);
        return left_of(remaining < stride ? remaining : stride, offset);
    }
};

// Sends each peer the part of its block; the own block's part stays in its place.
template <typename Port, uint32_t kRanks, typename Places>
__device__ __forceinline__ Part scatter_parts(const Start<Port> &start, const Peers &peers,
                                              const Places &blocks, const char *send,
                                              uint32_t offset, uint32_t line, uint64_t *epoch) {
    const uint32_t ranks = ranks_of<kRanks>(peers);
    Part parts[most_ranks<kRanks>()];
    TUCCL_EACH_RANK(k) {
        const uint32_t peer = peer_after(peers.rank, k, ranks);
        parts[k] = start.port.load(send + blocks.first(peer) + offset, blocks.left(peer, offset),
                                   start.aligned);
    }
    *epoch = next_epoch(peers);
    TUCCL_EACH_PEER(k) {
        send_to(start, peers, k, 0, *epoch, line, parts[k]);
    }
    return parts[0];
}

// Reduces all ranks' parts, including this rank's own.
template <typename Port, typename Reduce, uint32_t kRanks>
__device__ __forceinline__ Part reduce_parts(const Start<Port> &start, const Peers &peers,
                                             const Work &work, uint64_t epoch, uint32_t line,
                                             Part own) {
    Part parts[most_others<kRanks>()];
    receive_all<Port, kRanks>(start.port, peers, 0, epoch, line, parts);
    return sum_of<Port, Reduce, kRanks>(work, peers, own, parts);
}

// Stores all ranks' parts in their places, including this rank's own.
template <typename Port, uint32_t kRanks, typename Places>
__device__ __forceinline__ void
gather_parts(const Start<Port> &start, const Peers &peers, const Places &blocks, char *receive,
             uint32_t offset, uint32_t line, uint32_t phase, uint64_t epoch, Part own) {
    const uint32_t ranks = ranks_of<kRanks>(peers);
    Part parts[most_others<kRanks>()];
    start.port.store(receive + blocks.first(peers.rank) + offset, own,
                     blocks.left(peers.rank, offset), start.aligned);
    receive_all<Port, kRanks>(start.port, peers, phase, epoch, line, parts);
    TUCCL_EACH_OTHER(k) {
        const uint32_t from = peer_rank(peers.rank, k);
        start.port.store(receive + blocks.first(from) + offset, parts[k], blocks.left(from, offset),
                         start.aligned);
    }
}

// all_reduce in one phase: every rank sends all of its data to all ranks and reduces by itself.
template <typename Port, typename Reduce, uint32_t kRanks>
__global__ void __launch_bounds__(1024)
    one_phase(const __grid_constant__ Work work, const __grid_constant__ Peers peers) {
    const uint32_t ranks = ranks_of<kRanks>(peers);
    const Blocks blocks = {0, work.bytes};
    const Start<Port> start(work, work.bytes, 0);
    uint64_t epoch = 0;
    for (uint32_t unit = Port::first_unit(); unit < start.units; unit += Port::unit_step()) {
        const uint32_t offset = unit * Port::kUnitBytes;
        const uint32_t line = unit * Port::kLineBytes;
        const uint32_t left = blocks.left(0, offset);
        Part parts[most_others<kRanks>()];
        const Part own = start.port.load(work.send + offset, left, start.aligned);
        epoch = next_epoch(peers);
        TUCCL_EACH_PEER(k) {
            send_to(start, peers, k, 0, epoch, line, own);
        }
        receive_all<Port, kRanks>(start.port, peers, 0, epoch, line, parts);
        start.port.store(work.receive + offset,
                         sum_of<Port, Reduce, kRanks>(work, peers, own, parts), left,
                         start.aligned);
    }
    end_epoch(peers, epoch);
}

// What each rank does in other patterns: it sends each peer the part of its block, or all of them
// the same one; may add what it receives; and stores that, or the parts of all ranks in their
// places.
template <bool kScatters_, bool kReduces_, bool kGathers_> struct Steps {
    static constexpr bool kScatters = kScatters_;
    static constexpr bool kReduces = kReduces_;
    static constexpr bool kGathers = kGathers_;
    // Sums of shards are sent again: all_reduce in two phases.
    static constexpr bool kHasTwoPhases = kScatters && kReduces && kGathers;

    __device__ __forceinline__ static auto blocks_of(const Work &work) {
        if constexpr (kHasTwoPhases)
            return Shards{static_cast<uint32_t>(work.stride), work.bytes};
        else
            return Blocks{work.stride, work.bytes};
    }
};
using TwoPhase = Steps<true, true, true>;  // all_reduce
using Gather = Steps<false, false, true>;  // all_gather
using Scatter = Steps<true, true, false>;  // reduce_scatter
using Exchange = Steps<true, false, true>; // alltoall

template <typename Pattern, typename Port, typename Reduce, uint32_t kRanks>
__global__ void __launch_bounds__(1024)
    run_pattern(const __grid_constant__ Work work, const __grid_constant__ Peers peers) {
    const uint32_t ranks = ranks_of<kRanks>(peers);
    const auto blocks = Pattern::blocks_of(work);
    const Start<Port> start(
        work, Pattern::kHasTwoPhases ? static_cast<uint32_t>(work.stride) : work.bytes,
        Pattern::kHasTwoPhases ? 0 : work.stride);
    uint64_t epoch = 0;
    for (uint32_t unit = Port::first_unit(); unit < start.units; unit += Port::unit_step()) {
        const uint32_t offset = unit * Port::kUnitBytes;
        const uint32_t line = unit * Port::kLineBytes;
        Part part;
        if constexpr (Pattern::kScatters) {
            part =
                scatter_parts<Port, kRanks>(start, peers, blocks, work.send, offset, line, &epoch);
        } else {
            part = start.port.load(work.send + offset, blocks.left(0, offset), start.aligned);
            epoch = next_epoch(peers);
            TUCCL_EACH_PEER(k) {
                send_to(start, peers, k, 0, epoch, line, part);
            }
        }
        if constexpr (Pattern::kReduces)
            part = reduce_parts<Port, Reduce, kRanks>(start, peers, work, epoch, line, part);
        if constexpr (Pattern::kHasTwoPhases) {
            TUCCL_EACH_PEER(k) {
                send_to(start, peers, k, 1, epoch, line, part);
            }
        }
        if constexpr (Pattern::kGathers)
            gather_parts<Port, kRanks>(start, peers, blocks, work.receive, offset, line,
                                       Pattern::kHasTwoPhases ? 1 : 0, epoch, part);
        else
            start.port.store(work.receive + offset, part, blocks.left(0, offset), start.aligned);
    }
    end_epoch(peers, epoch);
}

#undef TUCCL_EACH_OTHER
#undef TUCCL_EACH_PEER
#undef TUCCL_EACH_RANK

} // namespace tuccl

#endif
