// How the interpreter adds up: units of one type, known when it is compiled or looked up. A step
// rounds its result to the call's type.
#ifndef TUCCL_EXECUTOR_INTERPRETER_PAIRS_H
#define TUCCL_EXECUTOR_INTERPRETER_PAIRS_H

#include "interpreter_memory.h"
#include "words.cuh"

namespace tuccl {

template <typename Element>
__device__ __noinline__ uint64_t average_of(Words<Element> words, uint32_t ranks) {
    return words.word(TUCCL_AVG, ranks);
}

// Adds up two units of one type...
template <typename Element> struct PairOf {
    __device__ __forceinline__ static uint64_t word(uint64_t first, uint64_t second,
                                                    uint32_t reduction, uint32_t ranks) {
        Words<Element> words;
        words.start(first);
        words.add(second, reduction);
        return words.word(reduction, ranks);
    }
    __device__ __forceinline__ static Unit reduce(Unit first, Unit second, uint32_t,
                                                  uint32_t reduction, uint32_t ranks) {
        return {word(first.low, second.low, reduction, ranks),
                word(first.high, second.high, reduction, ranks)};
    }

    // Of any number of units, the high halves too where there are two words. Sums and averages.
    template <uint32_t kWords> struct Sum {
        Words<Element> low;
        Words<Element> high;
        uint32_t ranks;
        bool averages;

        __device__ __forceinline__ Sum(uint32_t, uint32_t reduction, uint32_t all, bool completes)
            : ranks(all), averages(reduction == TUCCL_AVG && completes) {
        }
        __device__ __forceinline__ void start(Unit unit) {
            low.start(unit.low);
            if (kWords == 2)
                high.start(unit.high);
        }
        __device__ __forceinline__ void add(Unit unit, bool) {
            low.add(unit.low, TUCCL_SUM);
            if (kWords == 2)
                high.add(unit.high, TUCCL_SUM);
        }
        __device__ __forceinline__ Unit unit() const {
            return {word(low), kWords == 2 ? word(high) : 0};
        }

      private:
        // Divisions are long and rare: there is one place for them.
        __device__ __forceinline__ uint64_t word(const Words<Element> &words) const {
            return averages ? average_of(words, ranks) : words.word(TUCCL_SUM, ranks);
        }
    };
};

template <typename Element>
__device__ __noinline__ Unit reduce_units(Unit first, Unit second, uint32_t reduction,
                                          uint32_t ranks) {
    return PairOf<Element>::reduce(first, second, 0, reduction, ranks);
}

// ... and of any type, looked up unit by unit.
struct AnyPair {
    __device__ __noinline__ static Unit reduce(Unit first, Unit second, uint32_t type,
                                               uint32_t reduction, uint32_t ranks) {
        switch (type) {
        case TUCCL_INT8:
            return reduce_units<int8_t>(first, second, reduction, ranks);
        case TUCCL_UINT8:
            return reduce_units<uint8_t>(first, second, reduction, ranks);
        case TUCCL_INT32:
            return reduce_units<int32_t>(first, second, reduction, ranks);
        case TUCCL_UINT32:
            return reduce_units<uint32_t>(first, second, reduction, ranks);
        case TUCCL_INT64:
            return reduce_units<int64_t>(first, second, reduction, ranks);
        case TUCCL_UINT64:
            return reduce_units<uint64_t>(first, second, reduction, ranks);
        case TUCCL_FLOAT16:
            return reduce_units<__half>(first, second, reduction, ranks);
        case TUCCL_FLOAT32:
            return reduce_units<float>(first, second, reduction, ranks);
        case TUCCL_FLOAT64:
            return reduce_units<double>(first, second, reduction, ranks);
        default:
            return reduce_units<__nv_bfloat16>(first, second, reduction, ranks);
        }
    }

    template <uint32_t kWords> struct Sum {
        Unit value = {0, 0};
        uint32_t type;
        uint32_t reduction;
        uint32_t ranks;
        bool completes;

        __device__ __forceinline__ Sum(uint32_t a_type, uint32_t a_reduction, uint32_t all,
                                       bool is_complete)
            : type(a_type), reduction(a_reduction), ranks(all), completes(is_complete) {
        }
        __device__ __forceinline__ void start(Unit unit) {
            value = unit;
        }
        __device__ __forceinline__ void add(Unit unit, bool is_last_one) {
            const bool sums = reduction == TUCCL_AVG && !(completes && is_last_one);
            value = reduce(value, unit, type, sums ? uint32_t{TUCCL_SUM} : reduction, ranks);
        }
        __device__ __forceinline__ Unit unit() const {
            return value;
        }
    };
};

} // namespace tuccl

#endif
