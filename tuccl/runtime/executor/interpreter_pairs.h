// How the interpreter adds up: a message's unit and one of the rank's own. The result is rounded to
// the call's type in every step.
#ifndef TUCCL_EXECUTOR_INTERPRETER_PAIRS_H
#define TUCCL_EXECUTOR_INTERPRETER_PAIRS_H

#include "interpreter_memory.h"
#include "words.cuh"

namespace tuccl {

// Adds up two units of one type...
template <typename Element> struct PairOf {
    __device__ __forceinline__ static uint64_t word(uint64_t one, uint64_t other,
                                                    uint32_t reduction, uint32_t ranks) {
        Words<Element> words;
        words.start(one);
        words.add(other, reduction);
        return words.word(reduction, ranks);
    }
    __device__ __forceinline__ static Unit reduce(Unit one, Unit other, uint32_t,
                                                  uint32_t reduction, uint32_t ranks) {
        return {word(one.low, other.low, reduction, ranks),
                word(one.high, other.high, reduction, ranks)};
    }
};

template <typename Element>
__device__ __noinline__ Unit reduce_units(Unit one, Unit other, uint32_t reduction,
                                          uint32_t ranks) {
    return PairOf<Element>::reduce(one, other, 0, reduction, ranks);
}

// ... and of any type, looked up unit by unit.
struct AnyPair {
    __device__ __forceinline__ static Unit reduce(Unit one, Unit other, uint32_t type,
                                                  uint32_t reduction, uint32_t ranks) {
        switch (type) {
        case TUCCL_INT8:
            return reduce_units<int8_t>(one, other, reduction, ranks);
        case TUCCL_UINT8:
            return reduce_units<uint8_t>(one, other, reduction, ranks);
        case TUCCL_INT32:
            return reduce_units<int32_t>(one, other, reduction, ranks);
        case TUCCL_UINT32:
            return reduce_units<uint32_t>(one, other, reduction, ranks);
        case TUCCL_INT64:
            return reduce_units<int64_t>(one, other, reduction, ranks);
        case TUCCL_UINT64:
            return reduce_units<uint64_t>(one, other, reduction, ranks);
        case TUCCL_FLOAT16:
            return reduce_units<__half>(one, other, reduction, ranks);
        case TUCCL_FLOAT32:
            return reduce_units<float>(one, other, reduction, ranks);
        case TUCCL_FLOAT64:
            return reduce_units<double>(one, other, reduction, ranks);
        default:
            return reduce_units<__nv_bfloat16>(one, other, reduction, ranks);
        }
    }
};

} // namespace tuccl

#endif
