// The interpreter's protocols: the layout of a chunk in a slot, each thread's share of it, and how
// a receiver detects its arrival.
#ifndef TUCCL_EXECUTOR_INTERPRETER_WIRES_H
#define TUCCL_EXECUTOR_INTERPRETER_WIRES_H

#include "interpreter_memory.h"

namespace tuccl {

// Which bytes of a chunk a unit holds.
struct UnitPlace {
    uint32_t offset;
    uint32_t bytes;
};

// Lines that carry their own flags: nothing else is waited for.
struct LlWire {
    static constexpr bool kFlagsInLines = true;
    static constexpr uint32_t kWords = 1; // Of a unit.
    static constexpr uint32_t kBatch = 4;

    __device__ __forceinline__ static uint32_t units(uint32_t bytes) {
        return bytes / 8;
    }
    __device__ __forceinline__ static UnitPlace place(uint32_t unit) {
        return {unit * 8, 8};
    }
    __device__ __forceinline__ static uint32_t line_bytes(uint32_t bytes) {
        return bytes * 2;
    }
    __device__ __forceinline__ static void put(char *lines, uint32_t unit, Part value,
                                               uint64_t number) {
        store_line(lines + 16 * unit, value.low, static_cast<uint32_t>(number));
    }
    __device__ __forceinline__ static bool peek(const char *lines, uint32_t unit, uint64_t number,
                                                Part *value) {
        return peek_line(lines + 16 * unit, static_cast<uint32_t>(number), &value->low);
    }
    __device__ __forceinline__ static bool all(bool has_arrived) {
        return has_arrived;
    }
};

// Plain data; one flag per message, set when all of it is written.
struct SimpleWire {
    static constexpr bool kFlagsInLines = false;
    static constexpr uint32_t kWords = 2;
    static constexpr uint32_t kBatch = 4;

    __device__ __forceinline__ static uint32_t units(uint32_t bytes) {
        return bytes / 16;
    }
    __device__ __forceinline__ static UnitPlace place(uint32_t unit) {
        return {unit * 16, 16};
    }
    __device__ __forceinline__ static uint32_t line_bytes(uint32_t bytes) {
        return bytes;
    }
    __device__ __forceinline__ static void put(char *lines, uint32_t unit, Part value, uint64_t) {
        store_unit(lines + 16 * unit, value, 16, 16);
    }
    __device__ __forceinline__ static bool peek(const char *lines, uint32_t unit, uint64_t,
                                                Part *value) {
        *value = load_slot(lines + 16 * unit);
        return true;
    }
    __device__ __forceinline__ static bool all(bool has_arrived) {
        return has_arrived;
    }
};

#ifdef __CUDACC__

// A warp's pieces (ll.cuh). A warp's store must arrive as one piece, so there is none for host
// threads.
struct Ll128Wire {
    static constexpr bool kFlagsInLines = true;
    static constexpr uint32_t kWords = 2;
    static constexpr uint32_t kBatch = 4;

    // Whole warps, so that all lanes of one take part.
    __device__ __forceinline__ static uint32_t units(uint32_t bytes) {
        return (bytes + kPieceBytes - 1) / kPieceBytes * 32;
    }
    __device__ __forceinline__ static UnitPlace place(uint32_t unit) {
        const Lane lane = lane_of(threadIdx.x % 32); // The unit's, and the same for all units.
        return {unit / 32 * kPieceBytes + lane.offset, lane.bytes};
    }
    __device__ __forceinline__ static uint32_t line_bytes(uint32_t bytes) {
        return units(bytes) * 16;
    }
    __device__ __forceinline__ static void put(char *lines, uint32_t unit, Part value,
                                               uint64_t number) {
        const bool has_flag = threadIdx.x % 8 == 7;
        store_ll128(lines + 16 * unit, make_ulonglong2(value.low, has_flag ? number : value.high));
    }
    __device__ __forceinline__ static bool peek(const char *lines, uint32_t unit, uint64_t number,
                                                Part *value) {
        ulonglong2 both;
        const bool has_arrived = peek_ll128(lines + 16 * unit, threadIdx.x % 8 == 7, number, &both);
        *value = {both.x, both.y};
        return has_arrived;
    }
    __device__ __forceinline__ static bool all(bool has_arrived) {
        return __all_sync(kWholeWarp, has_arrived);
    }
};

#endif

} // namespace tuccl

#endif
