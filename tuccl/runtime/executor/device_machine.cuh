// Threads and blocks of a kernel, as interpreters ask for them.
#ifndef TUCCL_EXECUTOR_DEVICE_MACHINE_CUH
#define TUCCL_EXECUTOR_DEVICE_MACHINE_CUH

#include <cstdint>

namespace tuccl {

struct DeviceMachine {
    __device__ __forceinline__ static uint32_t thread() {
        return threadIdx.x;
    }
    __device__ __forceinline__ static uint32_t threads() {
        return blockDim.x;
    }
    __device__ __forceinline__ static uint32_t block() {
        return blockIdx.x;
    }
    __device__ __forceinline__ static uint32_t blocks() {
        return gridDim.x;
    }
    __device__ __forceinline__ static void barrier() {
        __syncthreads();
    }
};

} // namespace tuccl

#endif
