// The unit of a user's buffer that one thread moves at once, and moves of single bytes. Compiled by
// nvcc, and by a host compiler for the tests.
#ifndef TUCCL_EXECUTOR_PART_H
#define TUCCL_EXECUTOR_PART_H

#include <cstdint>

#ifndef __CUDACC__
#include "host_arithmetic.h"
#endif

namespace tuccl {

// Up to 16 bytes; under LL the lower half alone.
struct Part {
    uint64_t low;
    uint64_t high;
};

// Moves byte by byte at the end of a buffer or at an unaligned address. Not inlined: a kernel that
// jumps over so many instructions waits for the next ones.
inline __device__ __noinline__ Part load_bytes(const char *from, uint32_t bytes) {
    Part part = {0, 0};
    for (uint32_t i = 0; i < bytes; i++) {
        const uint64_t byte = static_cast<unsigned char>(from[i]);
        (i < 8 ? part.low : part.high) |= byte << (8 * (i % 8));
    }
    return part;
}

inline __device__ __noinline__ void store_bytes(char *to, Part part, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i++)
        to[i] = static_cast<char>((i < 8 ? part.low : part.high) >> (8 * (i % 8)));
}

} // namespace tuccl

#endif
