// What somebody writes who needs one collective of 16-bit floats on one node and nothing else: the
// number of ranks fixed, buffers aligned and of whole words, no other types, no abort, no slices.
// Two ways, both usual: lines of LL into the others' staging memory, and plain loads from the
// others' buffers between two barriers, as NCCL's device API has it. The measure for what the
// executor's generality costs.
#ifndef TUCCL_TESTS_GPU_HAND_WRITTEN_CUH
#define TUCCL_TESTS_GPU_HAND_WRITTEN_CUH

#include "../../../tuccl/runtime/executor/ll.cuh"

#include <cstddef>
#include <cstdint>
#include <cuda_fp16.h>

namespace hand {

constexpr uint32_t kRanks = 4;
constexpr size_t kMostBytes = size_t{1} << 20;
constexpr size_t kLinesOfSource = kMostBytes / 8;
constexpr size_t kStagingBytes = 2 * kRanks * kLinesOfSource * 16;
constexpr uint32_t kMostBlocks = 64;
constexpr size_t kFlagStride = 8; // Words, so that flags do not share what is moved at once.
constexpr size_t kFlagBytes = kMostBlocks * kRanks * kFlagStride * 8;

struct Peers {
    const char *send[kRanks];
    char *receive[kRanks];
    char *staging[kRanks];
    uint64_t *flags[kRanks];
    uint64_t *epoch; // Own, and behind it how many blocks are done.
    uint32_t rank;
    uint32_t bytes; // Of a rank's part; of the message for all_reduce.
};

enum class Kind { kAllReduce, kTwoPhase, kAllGather, kReduceScatter };

__device__ __forceinline__ uint64_t begin(const Peers &peers) {
    return *static_cast<volatile uint64_t *>(peers.epoch) + 1;
}

__device__ __forceinline__ void end(const Peers &peers, uint64_t epoch) {
    __syncthreads();
    auto *done = reinterpret_cast<uint32_t *>(peers.epoch + 16);
    if (threadIdx.x == 0 && atomicInc(done, gridDim.x - 1) == gridDim.x - 1)
        *static_cast<volatile uint64_t *>(peers.epoch) = epoch;
}

__device__ __forceinline__ uint2 add(uint2 one, uint2 other) {
    const auto sum = [](uint32_t a, uint32_t b) {
        const __half2 both =
            __hadd2(*reinterpret_cast<__half2 *>(&a), *reinterpret_cast<__half2 *>(&b));
        return *reinterpret_cast<const uint32_t *>(&both);
    };
    return {sum(one.x, other.x), sum(one.y, other.y)};
}

template <Kind kKind> __global__ void ll(const __grid_constant__ Peers peers) {
    const uint64_t epoch = begin(peers);
    const uint32_t flag = static_cast<uint32_t>(epoch);
    const size_t half = epoch % 2 * kRanks;
    const auto line = [&](uint32_t to, uint32_t from, size_t i) {
        return peers.staging[to] + ((half + from) * kLinesOfSource + i) * 16;
    };
    const size_t words = peers.bytes / 8;
    const auto *send = reinterpret_cast<const uint2 *>(peers.send[peers.rank]);
    auto *receive = reinterpret_cast<uint2 *>(peers.receive[peers.rank]);
    for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < words;
         i += gridDim.x * size_t{blockDim.x}) {
        constexpr bool kParts = kKind == Kind::kReduceScatter;
        uint2 own[kRanks];
#pragma unroll
        for (uint32_t k = 0; k < kRanks; k++)
            own[k] = k == 0 || kParts ? send[(kParts ? (peers.rank + k) % kRanks * words : 0) + i]
                                      : own[0];
#pragma unroll
        for (uint32_t k = 1; k < kRanks; k++)
            tuccl::store_ll(line((peers.rank + k) % kRanks, peers.rank, i), own[k], flag);
        uint2 parts[kRanks];
        for (bool there = false; !there;) {
            there = true;
#pragma unroll
            for (uint32_t k = 1; k < kRanks; k++)
                there &=
                    tuccl::peek_ll(line(peers.rank, (peers.rank + k) % kRanks, i), flag, &parts[k]);
        }
        if constexpr (kKind == Kind::kAllGather) {
            receive[peers.rank * words + i] = own[0];
#pragma unroll
            for (uint32_t k = 1; k < kRanks; k++)
                receive[(peers.rank + k) % kRanks * words + i] = parts[k];
        } else {
            uint2 sum = own[0];
#pragma unroll
            for (uint32_t k = 1; k < kRanks; k++)
                sum = add(sum, parts[k]);
            receive[i] = sum;
        }
    }
    end(peers, epoch);
}

// Blocks of the same number on all ranks.
__device__ __forceinline__ void barrier(const Peers &peers, uint64_t number) {
    __syncthreads();
    if (threadIdx.x < kRanks) {
        const uint32_t peer = threadIdx.x;
        uint64_t *told = peers.flags[peer] + (blockIdx.x * kRanks + peers.rank) * kFlagStride;
        uint64_t *seen = peers.flags[peers.rank] + (blockIdx.x * kRanks + peer) * kFlagStride;
        asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(told), "l"(number) : "memory");
        uint64_t value = 0;
        do
            asm volatile("ld.acquire.sys.global.u64 %0, [%1];"
                         : "=l"(value)
                         : "l"(seen)
                         : "memory");
        while (value < number);
    }
    __syncthreads();
}

template <Kind kKind> __global__ void direct(const __grid_constant__ Peers peers) {
    const uint64_t epoch = begin(peers);
    barrier(peers, 2 * epoch);
    constexpr bool kShards = kKind == Kind::kTwoPhase;
    const size_t units = peers.bytes / 16 / (kShards ? kRanks : 1);
    const size_t first = kShards || kKind == Kind::kReduceScatter ? peers.rank * units : size_t{0};
    const auto load = [](const char *buffer, size_t unit) {
        return *(reinterpret_cast<const uint4 *>(buffer) + unit);
    };
    const auto store = [](char *buffer, size_t unit, uint4 value) {
        *(reinterpret_cast<uint4 *>(buffer) + unit) = value;
    };
    for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < units;
         i += gridDim.x * size_t{blockDim.x}) {
        uint4 parts[kRanks];
#pragma unroll
        for (uint32_t k = 0; k < kRanks; k++)
            parts[k] = load(peers.send[(peers.rank + k) % kRanks], first + i);
        if constexpr (kKind == Kind::kAllGather) {
#pragma unroll
            for (uint32_t k = 0; k < kRanks; k++)
                store(peers.receive[peers.rank], (peers.rank + k) % kRanks * units + i, parts[k]);
        } else {
            uint4 sum = parts[0];
#pragma unroll
            for (uint32_t k = 1; k < kRanks; k++) {
                const uint2 low = add({sum.x, sum.y}, {parts[k].x, parts[k].y});
                const uint2 high = add({sum.z, sum.w}, {parts[k].z, parts[k].w});
                sum = {low.x, low.y, high.x, high.y};
            }
#pragma unroll
            for (uint32_t k = 0; k < (kShards ? kRanks : 1); k++)
                store(peers.receive[(peers.rank + k) % kRanks], (kShards ? first : 0) + i, sum);
        }
    }
    barrier(peers, 2 * epoch + 1);
    end(peers, epoch);
}

} // namespace hand

#endif
