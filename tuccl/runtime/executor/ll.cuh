// LL128: a warp moves 512 bytes as four lines of 128, each with 120 bytes of data and an 8 byte
// flag at its end. NVLink keeps the 128 bytes that eight lanes store together in one piece, so the
// flag covers the whole line: nearly full bandwidth with no fence. Not for PCIe.
#ifndef TUCCL_EXECUTOR_LL_CUH
#define TUCCL_EXECUTOR_LL_CUH

#include <cstdint>

namespace tuccl {

// LL: lines of 16 bytes, 8 of data and a flag beside each half, stored and loaded whole. A reader
// that sees both flags sees the data, so a message needs no fence: least latency, half the
// bandwidth.
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

constexpr uint32_t kPieceBytes = 480;     // Data that a warp moves at once.
constexpr uint32_t kPieceLineBytes = 512; // The lines that carry it.
constexpr unsigned kWholeWarp = 0xFFFFFFFFU;

// Which bytes of a piece a lane carries: 28 lanes 16 bytes each, from the front; the four that also
// carry a flag 8 bytes each, at the end. So lanes read user buffers in order, 16 bytes at a time.
struct Lane {
    uint32_t offset;
    uint32_t bytes;
    bool has_flag;
};

__device__ __forceinline__ Lane lane_of(uint32_t lane) {
    const uint32_t line = lane / 8;
    const uint32_t place = lane % 8;
    if (place == 7)
        return {448 + 8 * line, 8, true};
    return {16 * (7 * line + place), 16, false};
}

__device__ __forceinline__ void store_ll128(void *slot, ulonglong2 value) {
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(slot), "l"(value.x), "l"(value.y)
                 : "memory");
}

// Reads a lane's part of a piece once; returns whether its flag, if this lane holds one, has
// arrived.
__device__ __forceinline__ bool peek_ll128(const void *slot, bool has_flag, uint64_t flag,
                                           ulonglong2 *value) {
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(value->x), "=l"(value->y)
                 : "l"(slot)
                 : "memory");
    return !has_flag || value->y == flag;
}

} // namespace tuccl

#endif
