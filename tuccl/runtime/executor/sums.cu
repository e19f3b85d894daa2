// All ranks add in the order of nodes, so that all get the same bits; 16-bit floats are added in 32
// bits and rounded once.
#include "device_comm.h"

#include "words.cuh"

#include <algorithm>

namespace tuccl {

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kMostBlocks = 256;
constexpr uint32_t kPartBytes = 16;

template <bool kWhole> __device__ __forceinline__ Part load(const char *from, uint32_t bytes) {
    return kWhole ? load_whole(from, kPartBytes) : load_bytes(from, bytes);
}

// Whole: every part has 16 bytes and is aligned to them.
template <typename Element, bool kWhole> __global__ void sum(const SumWork work) {
    const size_t parts = (work.bytes + kPartBytes - 1) / kPartBytes;
    const size_t step = size_t{gridDim.x} * blockDim.x;
    for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < parts; i += step) {
        const size_t first = i * kPartBytes;
        const uint32_t bytes = static_cast<uint32_t>(
            work.bytes - first < kPartBytes ? work.bytes - first : kPartBytes);
        Words<Element> low;
        Words<Element> high;
        const Part part = load<kWhole>(work.source + first, bytes);
        low.start(part.low);
        high.start(part.high);
        for (uint32_t k = 1; k < work.summands; k++) {
            const Part next = load<kWhole>(work.source + k * work.bytes + first, bytes);
            low.add(next.low, work.reduction);
            high.add(next.high, work.reduction);
        }
        const Part result = {low.word(work.reduction, work.summands),
                             high.word(work.reduction, work.summands)};
        if (kWhole)
            store_whole(work.target + first, result, kPartBytes);
        else
            store_bytes(work.target + first, result, bytes);
    }
}

using Kernel = void (*)(SumWork);

template <bool kWhole> Kernel kernel_of(uint32_t type) {
    static constexpr Kernel kKernels[TUCCL_TYPES] = {
        sum<int8_t, kWhole>,        sum<uint8_t, kWhole>, sum<int32_t, kWhole>,
        sum<uint32_t, kWhole>,      sum<int64_t, kWhole>, sum<uint64_t, kWhole>,
        sum<__half, kWhole>,        sum<float, kWhole>,   sum<double, kWhole>,
        sum<__nv_bfloat16, kWhole>,
    };
    return kKernels[type];
}

} // namespace

int load_sums() {
    for (uint32_t type = 0; type < TUCCL_TYPES; type++)
        for (const Kernel kernel : {kernel_of<false>(type), kernel_of<true>(type)})
            if (const int error = load_kernel(reinterpret_cast<const void *>(kernel)))
                return error;
    return cudaSuccess;
}

int launch_sum(const SumWork &work, uint32_t type, cudaStream_t stream) {
    const bool whole = (reinterpret_cast<uintptr_t>(work.source) |
                        reinterpret_cast<uintptr_t>(work.target) | work.bytes) %
                           kPartBytes ==
                       0;
    const size_t parts = (work.bytes + kPartBytes - 1) / kPartBytes;
    const size_t blocks = std::min<size_t>((parts + kThreads - 1) / kThreads, kMostBlocks);
    SumWork argument = work;
    void *arguments[] = {&argument};
    const Kernel kernel = whole ? kernel_of<true>(type) : kernel_of<false>(type);
    return cudaLaunchKernel(reinterpret_cast<const void *>(kernel),
                            dim3(static_cast<uint32_t>(std::max<size_t>(1, blocks))),
                            dim3(kThreads), arguments, 0, stream);
}

} // namespace tuccl
