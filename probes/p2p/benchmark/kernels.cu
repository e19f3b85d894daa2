#include "kernels.h"

namespace p2p {
namespace {

constexpr int kThreads = 512;
constexpr int kUnroll = 4;
constexpr uint32_t kWarmUps = 64;

__device__ uint64_t now_ns() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__device__ uint32_t load(const uint32_t *from) {
    uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

__device__ void store(uint32_t *to, uint32_t value) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// Returns false at the deadline. The clock is slow to read, so it is read every 256 polls.
__device__ bool wait_until(const uint32_t *word, uint32_t value, uint64_t deadline_ns) {
    for (uint32_t polls = 1; load(word) < value; polls++) {
        if (polls % 256 == 0 && now_ns() > deadline_ns)
            return false;
    }
    return true;
}

__device__ uint4 pattern(uint32_t seed, uint64_t index) {
    uint32_t mixed = (static_cast<uint32_t>(index) ^ static_cast<uint32_t>(index >> 32)) + seed;
    mixed = (mixed ^ (mixed >> 16)) * 0x7feb352du;
    mixed = (mixed ^ (mixed >> 15)) * 0x846ca68bu;
    return make_uint4(mixed, ~mixed, mixed ^ seed, static_cast<uint32_t>(index));
}

__global__ void fill_kernel(uint4 *to, uint64_t count, uint32_t seed) {
    uint64_t step = uint64_t{gridDim.x} * blockDim.x;
    for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
        to[i] = pattern(seed, i);
}

__global__ void compare_kernel(const uint4 *data, uint64_t count, uint32_t seed,
                               uint32_t *mismatch) {
    bool differs = false;
    uint64_t step = uint64_t{gridDim.x} * blockDim.x;
    for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
        uint4 have = data[i], want = pattern(seed, i);
        differs |= have.x != want.x || have.y != want.y || have.z != want.z || have.w != want.w;
    }
    if (__syncthreads_or(differs) && threadIdx.x == 0)
        *mismatch = 1;
}

__global__ void copy_kernel(uint4 *__restrict__ to, const uint4 *__restrict__ from,
                            uint64_t count) {
    uint64_t step = uint64_t{gridDim.x} * blockDim.x;
    uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    // Several loads in flight per thread, since a load from a peer takes a microsecond.
    for (; i + (kUnroll - 1) * step < count; i += kUnroll * step) {
        uint4 part[kUnroll];
#pragma unroll
        for (int k = 0; k < kUnroll; k++)
            part[k] = from[i + k * step];
#pragma unroll
        for (int k = 0; k < kUnroll; k++)
            to[i + k * step] = part[k];
    }
    for (; i < count; i += step)
        to[i] = from[i];
}

__global__ void hold_kernel(const uint32_t *gate, uint32_t ticket, uint64_t limit_ns,
                            uint32_t *missed) {
    if (!wait_until(gate, ticket, now_ns() + limit_ns))
        *missed = 1;
}

__global__ void write_and_fence_kernel(uint32_t *flag, uint32_t iterations, uint64_t limit_ns,
                                       LatencyResult *result) {
    uint64_t start = now_ns(), deadline = start + limit_ns;
    uint32_t done = 0;
    for (uint32_t i = 0; i < kWarmUps + iterations; i++) {
        if (i == kWarmUps)
            start = now_ns();
        store(flag, i);
        __threadfence_system();
        done += i >= kWarmUps;
        if (i % 64 == 0 && now_ns() > deadline)
            break;
    }
    result->iterations = done;
    result->elapsed_ns = done == iterations ? now_ns() - start : 0;
}

__global__ void exchange_flags_kernel(uint32_t *own, uint32_t *peer, uint32_t iterations,
                                      bool serves, uint64_t limit_ns, LatencyResult *result) {
    uint64_t start = now_ns(), deadline = start + limit_ns;
    uint32_t last = kWarmUps + iterations;
    for (uint32_t i = 1; i <= last; i++) {
        if (serves) {
            store(peer, i);
            if (!wait_until(own, i, deadline))
                return;
            if (i == kWarmUps)
                start = now_ns();
        } else {
            if (!wait_until(own, i, deadline))
                return;
            store(peer, i);
        }
    }
    if (serves) {
        result->iterations = iterations;
        result->elapsed_ns = now_ns() - start;
    }
}

int blocks_for(size_t count) {
    size_t blocks = (count + kThreads - 1) / kThreads;
    return static_cast<int>(blocks < 1024 ? (blocks ? blocks : 1) : 1024);
}

} // namespace

cudaError_t fill(void *to, size_t bytes, uint32_t seed, cudaStream_t stream) {
    size_t count = bytes / sizeof(uint4);
    fill_kernel<<<blocks_for(count), kThreads, 0, stream>>>(static_cast<uint4 *>(to), count, seed);
    return cudaGetLastError();
}

cudaError_t compare(const void *data, size_t bytes, uint32_t seed, uint32_t *mismatch,
                    cudaStream_t stream) {
    size_t count = bytes / sizeof(uint4);
    compare_kernel<<<blocks_for(count), kThreads, 0, stream>>>(static_cast<const uint4 *>(data),
                                                               count, seed, mismatch);
    return cudaGetLastError();
}

cudaError_t copy(void *to, const void *from, size_t bytes, int blocks, cudaStream_t stream) {
    copy_kernel<<<blocks, kThreads, 0, stream>>>(
        static_cast<uint4 *>(to), static_cast<const uint4 *>(from), bytes / sizeof(uint4));
    return cudaGetLastError();
}

cudaError_t hold(const uint32_t *gate, uint32_t ticket, uint64_t limit_ns, uint32_t *missed,
                 cudaStream_t stream) {
    hold_kernel<<<1, 1, 0, stream>>>(gate, ticket, limit_ns, missed);
    return cudaGetLastError();
}

cudaError_t write_and_fence(uint32_t *flag, uint32_t iterations, uint64_t limit_ns,
                            LatencyResult *result, cudaStream_t stream) {
    write_and_fence_kernel<<<1, 1, 0, stream>>>(flag, iterations, limit_ns, result);
    return cudaGetLastError();
}

cudaError_t exchange_flags(uint32_t *own, uint32_t *peer, uint32_t iterations, bool serves,
                           uint64_t limit_ns, LatencyResult *result, cudaStream_t stream) {
    exchange_flags_kernel<<<1, 1, 0, stream>>>(own, peer, iterations, serves, limit_ns, result);
    return cudaGetLastError();
}

cudaError_t has_code() {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, copy_kernel);
}

} // namespace p2p
