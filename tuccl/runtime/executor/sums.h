// Sums of arrays on one device, between the phases of a schedule across hosts.
#ifndef TUCCL_EXECUTOR_SUMS_H
#define TUCCL_EXECUTOR_SUMS_H

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

namespace tuccl {

// Summands are adjacent and `bytes` long each. The target is none of them.
struct SumWork {
    const char *source;
    char *target;
    size_t bytes;
    uint32_t summands;
    uint32_t reduction;
};

// Loads the kernels: CUDA loads one at its first use, which may wait for what runs. 0, or a
// cudaError_t.
int load_sums();

// 0, or a cudaError_t.
int launch_sum(const SumWork &work, uint32_t type, cudaStream_t stream);

} // namespace tuccl

#endif
