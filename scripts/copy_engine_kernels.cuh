// Kernels of copy_engine_ways.cuh: barriers between ranks, and stores into the others' buffers.
#ifndef TUCCL_COPY_ENGINE_KERNELS_CUH
#define TUCCL_COPY_ENGINE_KERNELS_CUH

#include <cstdint>
#include <cuda_runtime.h>

namespace ways {

constexpr int kMostRanks = 8;
constexpr int kSlots = 4; // Of the staging memory, per source.
constexpr size_t kMostSlotBytes = size_t{16} << 20;
constexpr size_t kStagingBytes = kMostRanks * kSlots * kMostSlotBytes;

// Words of a rank's flag memory. Those that others write are by writer.
enum Word : int {
    kCounter = 0, // Barriers so far, its own.
    kDone = 32,   // Blocks that are done, its own.
    kBroken = 64, // A wait had no end.
    kMet = 96,
    kStarts = 128, // Of barriers by stream memory operations.
    kEnds = 160,
    kFull = 256, // [source][slot].
    kFree = 512, // [destination][slot].
    kWords = 1024,
};

// What a kernel needs.
struct Peers {
    char *send[kMostRanks];
    char *receive[kMostRanks];
    uint32_t *words[kMostRanks];
    int rank;
    int ranks;
};

constexpr uint32_t kMostPolls = 1U << 22; // Seconds.

__device__ inline void wait_for(const Peers &peers, const uint32_t *word, uint32_t value) {
    for (uint32_t polls = 0; polls < kMostPolls; polls++) {
        uint32_t seen;
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(word) : "memory");
        if (static_cast<int32_t>(seen - value) >= 0)
            return;
    }
    peers.words[peers.rank][kBroken] = 1;
}

__device__ inline void tell(uint32_t *word, uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

__device__ inline void meet(const Peers &peers, uint32_t number, bool tells) {
    const int peer = static_cast<int>(threadIdx.x);
    if (peer < peers.ranks && peer != peers.rank) {
        if (tells)
            tell(&peers.words[peer][kMet + peers.rank], number);
        wait_for(peers, &peers.words[peers.rank][kMet + peer], number);
    }
    __syncthreads();
}

__global__ void barrier_kernel(Peers peers) {
    uint32_t *counter = &peers.words[peers.rank][kCounter];
    const uint32_t number = *counter + 1;
    __syncthreads();
    meet(peers, number, true);
    if (threadIdx.x == 0)
        *counter = number;
}

// The last block to end meets the others.
__device__ inline void end_together(const Peers &peers, uint32_t number) {
    __shared__ bool last;
    __threadfence_system();
    __syncthreads();
    uint32_t *mine = peers.words[peers.rank];
    if (threadIdx.x == 0)
        last = atomicInc(&mine[kDone], gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (!last)
        return;
    __threadfence_system();
    meet(peers, number, true);
    if (threadIdx.x == 0)
        mine[kCounter] = number;
}

// `part` is a multiple of 16, as all addresses are.
template <bool kPull, int kUnroll>
__global__ void __launch_bounds__(512) move_kernel(Peers peers, size_t part) {
    const uint32_t number = *static_cast<volatile uint32_t *>(&peers.words[peers.rank][kCounter]);
    meet(peers, number + 1, blockIdx.x == 0);
    const size_t units = part / sizeof(uint4);
    const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
    for (size_t first = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; first < units;
         first += step * kUnroll) {
        if (kPull) {
            for (int k = 0; k < peers.ranks; k++) {
                const int from = (peers.rank + k) % peers.ranks;
                const auto *source = reinterpret_cast<const uint4 *>(peers.send[from]);
                auto *target = reinterpret_cast<uint4 *>(peers.receive[peers.rank] + from * part);
                uint4 data[kUnroll];
#pragma unroll
                for (int i = 0; i < kUnroll; i++)
                    if (first + i * step < units)
                        data[i] = source[first + i * step];
#pragma unroll
                for (int i = 0; i < kUnroll; i++)
                    if (first + i * step < units)
                        target[first + i * step] = data[i];
            }
        } else {
            const auto *source = reinterpret_cast<const uint4 *>(peers.send[peers.rank]);
            uint4 data[kUnroll];
#pragma unroll
            for (int i = 0; i < kUnroll; i++)
                if (first + i * step < units)
                    data[i] = source[first + i * step];
            for (int k = 0; k < peers.ranks; k++) {
                const int to = (peers.rank + k) % peers.ranks;
                auto *target = reinterpret_cast<uint4 *>(peers.receive[to] + peers.rank * part);
#pragma unroll
                for (int i = 0; i < kUnroll; i++)
                    if (first + i * step < units)
                        target[first + i * step] = data[i];
            }
        }
    }
    end_together(peers, number + 2);
}

// One peer after the other, beginning with the next rank, so that no two write to one rank.
template <int kUnroll>
__global__ void __launch_bounds__(1024) push_in_turn_kernel(Peers peers, size_t part) {
    const uint32_t number = *static_cast<volatile uint32_t *>(&peers.words[peers.rank][kCounter]);
    meet(peers, number + 1, blockIdx.x == 0);
    const size_t units = part / sizeof(uint4);
    const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
    const auto *source = reinterpret_cast<const uint4 *>(peers.send[peers.rank]);
    for (int k = 1; k <= peers.ranks; k++) {
        const int to = (peers.rank + k) % peers.ranks;
        auto *target = reinterpret_cast<uint4 *>(peers.receive[to] + peers.rank * part);
        for (size_t first = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
             first < units; first += step * kUnroll) {
            uint4 data[kUnroll];
#pragma unroll
            for (int i = 0; i < kUnroll; i++)
                if (first + i * step < units)
                    data[i] = source[first + i * step];
#pragma unroll
            for (int i = 0; i < kUnroll; i++)
                if (first + i * step < units)
                    target[first + i * step] = data[i];
        }
    }
    end_together(peers, number + 2);
}

// Bulk copies through shared memory (TMA), driven by one thread a block.
constexpr int kStages = 4;
constexpr uint32_t kStageBytes = 32768;

__device__ inline uint32_t shared_address(const void *memory) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(memory));
}

__device__ inline void bulk_load(char *to, const char *from, uint32_t bytes, uint64_t *there) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(there)),
        "r"(bytes)
        : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "%2, [%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(there))
                 : "memory");
}

__device__ inline void bulk_wait(uint64_t *there, uint32_t parity) {
    asm volatile("{\n.reg .pred done;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}" ::"r"(shared_address(there)),
                 "r"(parity)
                 : "memory");
}

__device__ inline void bulk_store(char *to, const char *from, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

struct Bulk {
    const char *from;
    size_t offset;
    uint32_t bytes;
};

template <bool kInTurn> __global__ void bulk_kernel(Peers peers, size_t part) {
    extern __shared__ __align__(128) char stages[];
    __shared__ uint64_t there[kStages];
    const uint32_t number = *static_cast<volatile uint32_t *>(&peers.words[peers.rank][kCounter]);
    meet(peers, number + 1, blockIdx.x == 0);
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; i++)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&there[i])));
        asm volatile("fence.proxy.async;" ::: "memory");
        const size_t chunks = (part + kStageBytes - 1) / kStageBytes;
        const size_t mine =
            blockIdx.x < chunks ? (chunks - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
        const size_t steps = kInTurn ? mine * peers.ranks : mine;
        const auto chunk_of = [&](size_t step) {
            const size_t offset = ((step % mine) * gridDim.x + blockIdx.x) * kStageBytes;
            const uint32_t bytes =
                part - offset < kStageBytes ? static_cast<uint32_t>(part - offset) : kStageBytes;
            return Bulk{peers.send[peers.rank] + offset, offset, bytes};
        };
        const auto load = [&](size_t step) {
            const Bulk chunk = chunk_of(step);
            bulk_load(stages + step % kStages * kStageBytes, chunk.from, chunk.bytes,
                      &there[step % kStages]);
        };
        for (size_t step = 0; step < 2 && step < steps; step++)
            load(step);
        for (size_t step = 0; step < steps; step++) {
            if (step + 2 < steps) {
                asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
                load(step + 2);
            }
            const Bulk chunk = chunk_of(step);
            const char *stage = stages + step % kStages * kStageBytes;
            bulk_wait(&there[step % kStages], static_cast<uint32_t>(step / kStages) & 1);
            for (int k = 1; k <= (kInTurn ? 1 : peers.ranks); k++) {
                const int turn = kInTurn ? static_cast<int>(step / mine) + 1 : k;
                const int to = (peers.rank + turn) % peers.ranks;
                bulk_store(peers.receive[to] + peers.rank * part + chunk.offset, stage,
                           chunk.bytes);
            }
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
    }
    end_together(peers, number + 2);
}

__global__ void copy_kernel(char *to, const char *from, size_t bytes) {
    const size_t units = bytes / sizeof(uint4);
    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < units;
         i += static_cast<size_t>(gridDim.x) * blockDim.x)
        reinterpret_cast<uint4 *>(to)[i] = reinterpret_cast<const uint4 *>(from)[i];
}

} // namespace ways

#endif
