// How the interpreter touches memory: users' buffers of any alignment, and words by which
// threadblocks of one or several devices notify each other. Compiled by nvcc, and by a host
// compiler for the tests.
#ifndef TUCCL_EXECUTOR_INTERPRETER_MEMORY_H
#define TUCCL_EXECUTOR_INTERPRETER_MEMORY_H

#include "words.cuh"

#include <cstdint>

#ifdef __CUDACC__
#include "ll.cuh"
#else
#include <sched.h>
#endif

namespace tuccl {

// At most `wanted` bytes, 8 or 16, of which `valid` exist; zeros for the others.
__device__ __forceinline__ Part load_unit(const char *from, uint32_t wanted, uint64_t valid) {
    if (valid >= wanted && reinterpret_cast<uintptr_t>(from) % wanted == 0)
        return load_whole(from, wanted);
    if (valid == 0)
        return {0, 0};
    return load_bytes(from, valid < wanted ? static_cast<uint32_t>(valid) : wanted);
}

__device__ __forceinline__ void store_unit(char *to, Part unit, uint32_t wanted, uint64_t valid) {
    if (valid >= wanted && reinterpret_cast<uintptr_t>(to) % wanted == 0)
        store_whole(to, unit, wanted);
    else
        store_bytes(to, unit, valid < wanted ? static_cast<uint32_t>(valid) : wanted);
}

#ifdef __CUDACC__

// Words for other devices. A reader of a word sees all that the writer's block wrote or had seen
// before a barrier of that block.
__device__ __forceinline__ uint64_t look(const uint64_t *word) {
    uint64_t value = 0;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}
__device__ __forceinline__ void tell(uint64_t *word, uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
// Words for this device alone: the same guarantee at less cost.
__device__ __forceinline__ uint64_t look_here(const uint64_t *word) {
    uint64_t value = 0;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}
__device__ __forceinline__ void tell_here(uint64_t *word, uint64_t value) {
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
// For words after reads only: the data read is in registers by then.
__device__ __forceinline__ void tell_read(uint64_t *word, uint64_t value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ __forceinline__ void fence() {
    __threadfence_system();
}
// Counts blocks that are done; true for the last.
__device__ __forceinline__ bool is_last(uint32_t *done, uint32_t blocks) {
    return blocks == 1 || atomicInc(done, blocks - 1) == blocks - 1;
}

__device__ __forceinline__ void store_line(char *line, uint64_t data, uint32_t flag) {
    store_ll(line, make_uint2(static_cast<uint32_t>(data), static_cast<uint32_t>(data >> 32)),
             flag);
}
__device__ __forceinline__ bool peek_line(const char *line, uint32_t flag, uint64_t *data) {
    uint2 halves;
    const bool has_arrived = peek_ll(line, flag, &halves);
    *data = halves.x | static_cast<uint64_t>(halves.y) << 32;
    return has_arrived;
}
// A slot's data, which an earlier message's may hide in a cache.
__device__ __forceinline__ Part load_slot(const char *from) {
    Part unit;
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(unit.low), "=l"(unit.high)
                 : "l"(from)
                 : "memory");
    return unit;
}
__device__ __forceinline__ void pause() {
}

#else

constexpr uint32_t kPollsPerLook = 16;

inline bool aborted(const volatile uint32_t *abort) {
    return __atomic_load_n(abort, __ATOMIC_RELAXED) != 0;
}
inline uint64_t look(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
inline void tell(uint64_t *word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
inline uint64_t look_here(const uint64_t *word) {
    return look(word);
}
inline void tell_here(uint64_t *word, uint64_t value) {
    tell(word, value);
}
inline void tell_read(uint64_t *word, uint64_t value) {
    tell(word, value);
}
inline void fence() {
}
inline bool is_last(uint32_t *done, uint32_t blocks) {
    if (__atomic_add_fetch(done, 1, __ATOMIC_ACQ_REL) != blocks)
        return false;
    __atomic_store_n(done, 0, __ATOMIC_RELAXED);
    return true;
}

// Each half of a line carries its own flag, which is all that LL requires of a machine. Orders
// more than a GPU does, where what comes back is later than what was read for the data's sake
// alone.
inline void store_line(char *line, uint64_t data, uint32_t flag) {
    auto *halves = reinterpret_cast<uint64_t *>(line);
    const uint64_t high = static_cast<uint64_t>(flag) << 32;
    __atomic_store_n(halves, (data & 0xFFFFFFFF) | high, __ATOMIC_RELEASE);
    __atomic_store_n(halves + 1, data >> 32 | high, __ATOMIC_RELEASE);
}
inline bool peek_line(const char *line, uint32_t flag, uint64_t *data) {
    const auto *halves = reinterpret_cast<const uint64_t *>(line);
    const uint64_t low = __atomic_load_n(halves, __ATOMIC_ACQUIRE);
    const uint64_t high = __atomic_load_n(halves + 1, __ATOMIC_ACQUIRE);
    *data = (low & 0xFFFFFFFF) | high << 32;
    return low >> 32 == flag && high >> 32 == flag;
}
inline Part load_slot(const char *from) {
    const auto *words = reinterpret_cast<const uint64_t *>(from);
    return {words[0], words[1]};
}
inline void pause() {
    sched_yield();
}

#endif

} // namespace tuccl

#endif
