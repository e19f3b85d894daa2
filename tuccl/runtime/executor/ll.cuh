// LL: lines of 16 bytes, 8 of data and a flag beside each half, stored and loaded whole. A reader
// that sees both flags sees the data, so a message needs no fence: least latency, half the
// bandwidth.
#ifndef TUCCL_EXECUTOR_LL_CUH
#define TUCCL_EXECUTOR_LL_CUH

#include <cstdint>

namespace tuccl {

constexpr uint32_t kLlLineBytes = 16;
constexpr uint32_t kLlDataBytes = 8;

// Polls between two reads of the abort flag, which is in host memory and takes a microsecond.
constexpr uint32_t kPollsPerLook = 4096;

__device__ __forceinline__ bool aborted(const volatile uint32_t *abort) {
    return *abort != 0;
}

__device__ __forceinline__ void store_ll(void *line, uint2 data, uint32_t flag) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(line), "r"(data.x),
                 "r"(flag), "r"(data.y)
                 : "memory");
}

// Reads a line once; returns whether it has arrived, with its data.
__device__ __forceinline__ bool peek_ll(const void *line, uint32_t flag, uint2 *data) {
    uint32_t low_flag = 0;
    uint32_t high_flag = 0;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(data->x), "=r"(low_flag), "=r"(data->y), "=r"(high_flag)
                 : "l"(line)
                 : "memory");
    return low_flag == flag && high_flag == flag;
}

} // namespace tuccl

#endif
