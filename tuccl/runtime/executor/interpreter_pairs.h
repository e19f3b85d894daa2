// How the interpreter adds up: units of one type, known when it is compiled or looked up. A step
// rounds its result to the call's type.
#ifndef TUCCL_EXECUTOR_INTERPRETER_PAIRS_H
#define TUCCL_EXECUTOR_INTERPRETER_PAIRS_H

#include "interpreter_memory.h"

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
    __device__ __forceinline__ static Part reduce(Part first, Part second, uint32_t,
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
        __device__ __forceinline__ void start(Part unit) {
            low.start(unit.low);
            if (kWords == 2)
                high.start(unit.high);
        }
        __device__ __forceinline__ void add(Part unit, bool) {
            low.add(unit.low, TUCCL_SUM);
            if (kWords == 2)
                high.add(unit.high, TUCCL_SUM);
        }
        __device__ __forceinline__ Part unit() const {
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
__device__ __noinline__ Part reduce_units(Part first, Part second, uint32_t reduction,
                                          uint32_t ranks) {
    return PairOf<Element>::reduce(first, second, 0, reduction, ranks);
}

// ... and of any type, looked up unit by unit.
struct AnyPair {
    __device__ __noinline__ static Part reduce(Part first, Part second, uint32_t type,
                                               uint32_t reduction, uint32_t ranks) {
        return with_type(type, [&](auto element) {
            return reduce_units<typename decltype(element)::Type>(first, second, reduction, ranks);
        });
    }

    template <uint32_t kWords> struct Sum {
        Part value = {0, 0};
        uint32_t type;
        uint32_t reduction;
        uint32_t ranks;
        bool completes;

        __device__ __forceinline__ Sum(uint32_t a_type, uint32_t a_reduction, uint32_t all,
                                       bool is_complete)
            : type(a_type), reduction(a_reduction), ranks(all), completes(is_complete) {
        }
        __device__ __forceinline__ void start(Part unit) {
            value = unit;
        }
        __device__ __forceinline__ void add(Part unit, bool is_last_one) {
            const bool sums = reduction == TUCCL_AVG && !(completes && is_last_one);
            value = reduce(value, unit, type, sums ? uint32_t{TUCCL_SUM} : reduction, ranks);
        }
        __device__ __forceinline__ Part unit() const {
            return value;
        }
    };
};

// Of a type that has kernels of its own; void: of any.
template <typename Element>
using PairFor = std::conditional_t<std::is_void_v<Element>, AnyPair, PairOf<Element>>;

} // namespace tuccl

#endif
