// Moves of a thread's share of a message between the user's buffer and a protocol's lines.
//
// A `Port` moves a unit of data (a word under LL, a warp's piece under LL128); a thread's share of
// a unit is a `Part`. kWhole: parts of the user's buffers are complete or absent, and aligned
// (is_whole).
#ifndef TUCCL_EXECUTOR_PORTS_CUH
#define TUCCL_EXECUTOR_PORTS_CUH

#include "ll.cuh"
#include "words.cuh"

#include <cstddef>
#include <cstdint>

namespace tuccl {

// Reads or writes at most `wanted` bytes, 8 or 16, of which `left` exist. A whole buffer has all of
// them or none, at an aligned address; of others that is seen here.
template <bool kWhole>
__device__ __forceinline__ Part load_part(const char *from, uint32_t wanted, uint32_t left,
                                          bool aligned) {
    Part part = {0, 0};
    if (kWhole ? left == 0 : !aligned || left < wanted)
        return kWhole ? part : load_bytes(from, left < wanted ? left : wanted);
    if (wanted == 16) {
        const ulonglong2 both = *reinterpret_cast<const ulonglong2 *>(from);
        part = {both.x, both.y};
    } else {
        part.low = *reinterpret_cast<const uint64_t *>(from);
    }
    return part;
}

template <bool kWhole>
__device__ __forceinline__ void store_part(char *to, Part part, uint32_t wanted, uint32_t left,
                                           bool aligned) {
    if (kWhole ? left == 0 : !aligned || left < wanted) {
        if (!kWhole)
            store_bytes(to, part, left < wanted ? left : wanted);
    } else if (wanted == 16) {
        *reinterpret_cast<ulonglong2 *>(to) = make_ulonglong2(part.low, part.high);
    } else {
        *reinterpret_cast<uint64_t *>(to) = part.low;
    }
}

__device__ __forceinline__ uint32_t left_of(uint32_t bytes, uint32_t offset) {
    return offset < bytes ? bytes - offset : 0;
}

// A thread's share of the units under LL: one word at a time.
template <bool kWhole> struct LlPort {
    static constexpr uint32_t kUnitBytes = kLlDataBytes;
    static constexpr uint32_t kLineBytes = kLlLineBytes;
    static constexpr uint32_t kWords = 1;
    using AnyBuffers = LlPort<false>;

    __host__ __device__ __forceinline__ static uint32_t part_of(const Peers &peers) {
        return peers.ll_part;
    }
    __device__ __forceinline__ static uint32_t area_of(const Peers &peers, uint32_t number) {
        return number * peers.ll_area;
    }
    __device__ __forceinline__ static uint32_t first_unit() {
        return blockIdx.x * blockDim.x + threadIdx.x;
    }
    __device__ __forceinline__ static uint32_t unit_step() {
        return gridDim.x * blockDim.x;
    }
    __device__ __forceinline__ Part load(const char *unit, uint32_t left, bool aligned) const {
        return load_part<kWhole>(unit, kLlPartBytes, left, aligned);
    }
    __device__ __forceinline__ void store(char *unit, Part part, uint32_t left,
                                          bool aligned) const {
        store_part<kWhole>(unit, part, kLlPartBytes, left, aligned);
    }
    __device__ __forceinline__ void send(char *lines, Part part, uint64_t epoch) const {
        store_ll(lines, make_uint2(static_cast<uint32_t>(part.low), part.low >> 32),
                 static_cast<uint32_t>(epoch));
    }
    __device__ __forceinline__ bool peek(const char *lines, uint64_t epoch, Part *part) const {
        uint2 data;
        const bool has_arrived = peek_ll(lines, static_cast<uint32_t>(epoch), &data);
        *part = {data.x | static_cast<uint64_t>(data.y) << 32, 0};
        return has_arrived;
    }
    __device__ __forceinline__ static bool all(bool has_arrived) {
        return has_arrived;
    }
};

// A warp's share under LL128: one piece at a time.
template <bool kWhole> struct Ll128Port {
    static constexpr uint32_t kUnitBytes = kPieceBytes;
    static constexpr uint32_t kLineBytes = kPieceLineBytes;
    static constexpr uint32_t kWords = 2;
    using AnyBuffers = Ll128Port<false>;

    Lane lane;
    uint32_t slot;

    __device__ __forceinline__ Ll128Port()
        : lane(lane_of(threadIdx.x % 32)), slot(16 * (threadIdx.x % 32)) {
    }
    __host__ __device__ __forceinline__ static uint32_t part_of(const Peers &peers) {
        return peers.ll128_part;
    }
    __device__ __forceinline__ static uint32_t area_of(const Peers &peers, uint32_t number) {
        return peers.ll128_first + number * peers.ll128_area;
    }
    __device__ __forceinline__ static uint32_t first_unit() {
        return (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    }
    __device__ __forceinline__ static uint32_t unit_step() {
        return gridDim.x * blockDim.x / 32;
    }
    // Lanes diverge here and must converge again: a line is sent in one piece by lanes that store
    // together, and its flag covers only data loaded with it.
    __device__ __forceinline__ Part load(const char *unit, uint32_t left, bool aligned) const {
        const Part part =
            load_part<kWhole>(unit + lane.offset, lane.bytes, left_of(left, lane.offset), aligned);
        __syncwarp();
        return part;
    }
    __device__ __forceinline__ void store(char *unit, Part part, uint32_t left,
                                          bool aligned) const {
        store_part<kWhole>(unit + lane.offset, part, lane.bytes, left_of(left, lane.offset),
                           aligned);
        __syncwarp();
    }
    __device__ __forceinline__ void send(char *lines, Part part, uint64_t epoch) const {
        store_ll128(lines + slot, make_ulonglong2(part.low, lane.has_flag ? epoch : part.high));
    }
    __device__ __forceinline__ bool peek(const char *lines, uint64_t epoch, Part *part) const {
        ulonglong2 both;
        const bool has_arrived = peek_ll128(lines + slot, lane.has_flag, epoch, &both);
        *part = {both.x, both.y};
        return has_arrived;
    }
    // Lanes without a flag follow those that have one.
    __device__ __forceinline__ static bool all(bool has_arrived) {
        return __all_sync(kWholeWarp, has_arrived);
    }
};

} // namespace tuccl

#endif
