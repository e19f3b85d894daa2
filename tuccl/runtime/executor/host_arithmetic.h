// CUDA functions used by words.cuh and the interpreter, for a host compiler: tests run the same
// sources on host threads. Neither installed nor part of the executor.
#ifndef TUCCL_EXECUTOR_HOST_ARITHMETIC_H
#define TUCCL_EXECUTOR_HOST_ARITHMETIC_H

#include <cstdint>
#include <cstring>
#include <math.h>

#define __device__
#define __forceinline__ inline
// Empty rather than an attribute: the standard library writes __attribute__((__noinline__)).
#define __noinline__

namespace tuccl {

template <typename To, typename From> To same_bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "the bits of one are those of the other");
    To result;
    std::memcpy(&result, &value, sizeof result);
    return result;
}

struct __half {
    uint16_t bits;
};
struct __nv_bfloat16 {
    uint16_t bits;
};

inline float __uint_as_float(uint32_t bits) {
    return same_bits<float>(bits);
}
inline uint32_t __float_as_uint(float value) {
    return same_bits<uint32_t>(value);
}
inline double __longlong_as_double(long long bits) {
    return same_bits<double>(bits);
}
inline long long __double_as_longlong(double value) {
    return same_bits<long long>(value);
}
inline __half __ushort_as_half(uint16_t bits) {
    return {bits};
}
inline uint16_t __half_as_ushort(__half value) {
    return value.bits;
}
inline __nv_bfloat16 __ushort_as_bfloat16(uint16_t bits) {
    return {bits};
}
inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 value) {
    return value.bits;
}

inline float __bfloat162float(__nv_bfloat16 value) {
    return same_bits<float>(static_cast<uint32_t>(value.bits) << 16);
}
// Rounds to nearest, ties to even.
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
    const uint32_t bits = same_bits<uint32_t>(value);
    if (value != value)
        return {0x7FFF};
    return {static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

inline float __half2float(__half value) {
    const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000) << 16;
    const uint32_t exponent = value.bits >> 10 & 0x1F;
    const uint32_t fraction = value.bits & 0x3FF;
    if (exponent == 0x1F)
        return same_bits<float>(sign | 0x7F800000 | fraction << 13);
    if (exponent > 0)
        return same_bits<float>(sign | (exponent + 112) << 23 | fraction << 13);
    const float small = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -small : small;
}
inline __half __float2half_rn(float value) {
    const uint32_t bits = same_bits<uint32_t>(value);
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
    const float size = same_bits<float>(bits & 0x7FFFFFFF);
    if (value != value)
        return {0x7FFF};
    if (size >= 65520.0F)
        return {static_cast<uint16_t>(sign | 0x7C00)};
    if (size < 0x1p-14F) // Adding 0.5 rounds to multiples of 2^-24.
        return {static_cast<uint16_t>(sign | (same_bits<uint32_t>(size + 0.5F) & 0x7FF))};
    const uint32_t rest = bits & 0x7FFFFFFF;
    const uint32_t rounded = rest + 0xFFF + (rest >> 13 & 1) - (112U << 23);
    return {static_cast<uint16_t>(sign | rounded >> 13)};
}

} // namespace tuccl

#endif
