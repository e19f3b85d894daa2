// What a thread moves at once, and reductions on its words of 8 bytes, whatever elements they hold.
// Every rank adds in the order of ranks, so all get the same bits; 16-bit floats are added in 32
// bits and rounded once. Compiled by nvcc, and by a host compiler for the tests.
#ifndef TUCCL_EXECUTOR_WORDS_CUH
#define TUCCL_EXECUTOR_WORDS_CUH

#include "executor.h"

#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#include "host_arithmetic.h"
#endif

namespace tuccl {

// Up to 16 bytes; under LL the lower half alone.
struct Part {
    uint64_t low;
    uint64_t high;
};

// 8 or 16 bytes at a multiple of that.
__device__ __forceinline__ Part load_whole(const char *from, uint32_t bytes) {
    if (bytes == 8)
        return {*reinterpret_cast<const uint64_t *>(from), 0};
#ifdef __CUDACC__
    const ulonglong2 both = *reinterpret_cast<const ulonglong2 *>(from);
    return {both.x, both.y};
#else
    const auto *words = reinterpret_cast<const uint64_t *>(from);
    return {words[0], words[1]};
#endif
}

__device__ __forceinline__ void store_whole(char *to, Part unit, uint32_t bytes) {
    if (bytes == 8) {
        *reinterpret_cast<uint64_t *>(to) = unit.low;
        return;
    }
#ifdef __CUDACC__
    *reinterpret_cast<ulonglong2 *>(to) = make_ulonglong2(unit.low, unit.high);
#else
    auto *words = reinterpret_cast<uint64_t *>(to);
    words[0] = unit.low;
    words[1] = unit.high;
#endif
}

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

template <typename Element> struct TypeOf {
    using Type = Element;
};

// Calls visit(TypeOf<Element>) for types whose sums and averages have kernels of their own, and
// visit(TypeOf<void>) for all else. Host code.
template <typename Visit>
auto with_frequent_sum(uint32_t type, uint32_t reduction, const Visit &visit) {
    const bool sums = reduction == TUCCL_SUM || reduction == TUCCL_AVG;
    switch (sums ? type : uint32_t{TUCCL_TYPES}) {
    case TUCCL_FLOAT16:
        return visit(TypeOf<__half>{});
    case TUCCL_BFLOAT16:
        return visit(TypeOf<__nv_bfloat16>{});
    case TUCCL_FLOAT32:
        return visit(TypeOf<float>{});
    default:
        return visit(TypeOf<void>{});
    }
}

// Calls visit(TypeOf<Element>) for a code of enum tuccl_type.
template <typename Visit>
__device__ __forceinline__ auto with_type(uint32_t type, const Visit &visit) {
    switch (type) {
    case TUCCL_INT8:
        return visit(TypeOf<int8_t>{});
    case TUCCL_UINT8:
        return visit(TypeOf<uint8_t>{});
    case TUCCL_INT32:
        return visit(TypeOf<int32_t>{});
    case TUCCL_UINT32:
        return visit(TypeOf<uint32_t>{});
    case TUCCL_INT64:
        return visit(TypeOf<int64_t>{});
    case TUCCL_UINT64:
        return visit(TypeOf<uint64_t>{});
    case TUCCL_FLOAT16:
        return visit(TypeOf<__half>{});
    case TUCCL_FLOAT32:
        return visit(TypeOf<float>{});
    case TUCCL_FLOAT64:
        return visit(TypeOf<double>{});
    default:
        return visit(TypeOf<__nv_bfloat16>{});
    }
}

// The type in which elements are added.
template <typename Element> struct WideOf {
    using Type = Element;
};
template <> struct WideOf<__half> {
    using Type = float;
};
template <> struct WideOf<__nv_bfloat16> {
    using Type = float;
};

// An element of a word, and back. By shifts and casts of registers: an address would put the word
// into local memory, and cost more than the whole reduction.
template <typename Element> struct Bits {
    using Unsigned =
        std::conditional_t<sizeof(Element) == 1, uint8_t,
                           std::conditional_t<sizeof(Element) == 4, uint32_t, uint64_t>>;
    __device__ __forceinline__ static Element take(uint64_t bits) {
        return static_cast<Element>(static_cast<Unsigned>(bits));
    }
    __device__ __forceinline__ static uint64_t give(Element value) {
        return static_cast<Unsigned>(value);
    }
};
template <> struct Bits<float> {
    __device__ __forceinline__ static float take(uint64_t bits) {
        return __uint_as_float(static_cast<uint32_t>(bits));
    }
    __device__ __forceinline__ static uint64_t give(float value) {
        return __float_as_uint(value);
    }
};
template <> struct Bits<double> {
    __device__ __forceinline__ static double take(uint64_t bits) {
        return __longlong_as_double(static_cast<long long>(bits));
    }
    __device__ __forceinline__ static uint64_t give(double value) {
        return static_cast<uint64_t>(__double_as_longlong(value));
    }
};
template <> struct Bits<__half> {
    __device__ __forceinline__ static float take(uint64_t bits) {
        return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
    }
    __device__ __forceinline__ static uint64_t give(float value) {
        return __half_as_ushort(__float2half_rn(value));
    }
};
template <> struct Bits<__nv_bfloat16> {
    __device__ __forceinline__ static float take(uint64_t bits) {
        return __bfloat162float(__ushort_as_bfloat16(static_cast<unsigned short>(bits)));
    }
    __device__ __forceinline__ static uint64_t give(float value) {
        return __bfloat16_as_ushort(__float2bfloat16_rn(value));
    }
};

// The type of additions and multiplications: unsigned integers, whose overflow is defined.
template <typename Wide, bool kIsWhole = std::is_integral<Wide>::value> struct Ring {
    using Type = Wide;
};
template <typename Wide> struct Ring<Wide, true> {
    using Type = std::make_unsigned_t<Wide>;
};

// The larger and the smaller one; of a NaN and a number the number, as NCCL has it.
template <typename Wide> __device__ __forceinline__ Wide larger(Wide first, Wide second) {
    if constexpr (std::is_floating_point<Wide>::value)
        return fmax(first, second);
    return first > second ? first : second;
}
template <typename Wide> __device__ __forceinline__ Wide smaller(Wide first, Wide second) {
    if constexpr (std::is_floating_point<Wide>::value)
        return fmin(first, second);
    return first < second ? first : second;
}

template <typename Wide>
__device__ __forceinline__ Wide combine(Wide first, Wide second, uint32_t reduction) {
    using Number = typename Ring<Wide>::Type;
    switch (reduction) {
    case TUCCL_PROD:
        return static_cast<Wide>(static_cast<Number>(first) * static_cast<Number>(second));
    case TUCCL_MAX:
        return larger(first, second);
    case TUCCL_MIN:
        return smaller(first, second);
    default:
        return static_cast<Wide>(static_cast<Number>(first) + static_cast<Number>(second));
    }
}

// One word's worth of accumulators. `reduction` is a constant in the kernels that matter.
template <typename Element> struct Words {
    using Wide = typename WideOf<Element>::Type;
    static constexpr int kCount = 8 / sizeof(Element);

    Wide value[kCount];

    __device__ __forceinline__ static Wide element(uint64_t word, int i) {
        return Bits<Element>::take(word >> (8 * sizeof(Element) * i));
    }
    __device__ __forceinline__ void start(uint64_t word) {
#pragma unroll
        for (int i = 0; i < kCount; i++)
            value[i] = element(word, i);
    }
    __device__ __forceinline__ void add(uint64_t word, uint32_t reduction) {
#pragma unroll
        for (int i = 0; i < kCount; i++)
            value[i] = combine(value[i], element(word, i), reduction);
    }
    // Of `ranks` contributions; the average divides at the end.
    __device__ __forceinline__ uint64_t word(uint32_t reduction, uint32_t ranks) const {
        uint64_t result = 0;
#pragma unroll
        for (int i = 0; i < kCount; i++) {
            const Wide wide =
                reduction == TUCCL_AVG ? value[i] / static_cast<Wide>(ranks) : value[i];
            result |= Bits<Element>::give(wide) << (8 * sizeof(Element) * i);
        }
        return result;
    }
};

// The types and reductions that a kernel is compiled for...
template <typename Element, uint32_t kReduction> struct Fixed {
    Words<Element> words;
    __device__ __forceinline__ explicit Fixed(uint32_t, uint32_t) {
    }
    __device__ __forceinline__ void start(uint64_t word) {
        words.start(word);
    }
    __device__ __forceinline__ void add(uint64_t word) {
        words.add(word, kReduction);
    }
    __device__ __forceinline__ uint64_t word(uint32_t ranks) const {
        return words.word(kReduction, ranks);
    }
};

template <typename Element>
__device__ __noinline__ uint64_t combine_words(const uint64_t *contributions, uint32_t count,
                                               uint32_t reduction) {
    Words<Element> words;
    words.start(contributions[0]);
    for (uint32_t i = 1; i < count; i++)
        words.add(contributions[i], reduction);
    return words.word(reduction, count);
}

// ... and all others, looked up word by word, of so many ranks at most.
template <uint32_t kMost> struct Any {
    uint64_t contributions[kMost];
    uint32_t count;
    uint32_t type;
    uint32_t reduction;

    __device__ __forceinline__ Any(uint32_t a_type, uint32_t a_reduction)
        : count(0), type(a_type), reduction(a_reduction) {
    }
    __device__ __forceinline__ void start(uint64_t word) {
        count = 0;
        add(word);
    }
    __device__ __forceinline__ void add(uint64_t word) {
        contributions[count++] = word;
    }
    __device__ __forceinline__ uint64_t word(uint32_t) const {
        return with_type(type, [this](auto element) {
            return combine_words<typename decltype(element)::Type>(contributions, count, reduction);
        });
    }
};

} // namespace tuccl

#endif
