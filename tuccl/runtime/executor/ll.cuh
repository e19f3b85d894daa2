// LL: lines of 16 bytes, 8 of data and a flag beside each half, stored and loaded whole. Whoever
// sees both flags sees the data, so a message needs no fence: the least latency, half the wire.
#ifndef TUCCL_EXECUTOR_LL_CUH
#define TUCCL_EXECUTOR_LL_CUH

#include <cstdint>

namespace tuccl {

constexpr uint32_t kLlLineBytes = 16;
constexpr uint32_t kLlDataBytes = 8;

// Between two looks at the abort flag; it lies in host memory, a look costs a microsecond.
constexpr uint32_t kPollsPerLook = 4096;

__device__ __forceinline__ bool aborted(const volatile uint32_t *abort) {
    return *abort != 0;
}

__device__ __forceinline__ void store_ll(void *line, uint2 data, uint32_t flag) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(line), "r"(data.x),
                 "r"(flag), "r"(data.y)
                 : "memory");
}

// One look at a line: whether it is there, and what it holds.
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
