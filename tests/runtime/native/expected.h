// The data of a collective call and its right results: small whole numbers, so that every type
// holds every result exactly.
#ifndef TUCCL_TESTS_EXPECTED_H
#define TUCCL_TESTS_EXPECTED_H

#include "executor.h"
#include "program_layout.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tuccl_tests {

inline int value_at(const tuccl_call &call, uint32_t ranks, uint32_t rank, size_t element) {
    const uint32_t mixed = static_cast<uint32_t>(element * 2654435761U + rank * 40503U) >> 13;
    if (call.reduction == TUCCL_PROD)
        return static_cast<int>(mixed % 3);
    if (call.reduction == TUCCL_AVG && ranks > 8) // One byte holds the sum of so many.
        return static_cast<int>(rank % 11 == 0 ? mixed % 2 * ranks : 0);
    if (call.reduction == TUCCL_AVG)
        return static_cast<int>(mixed % 4 * ranks);
    return static_cast<int>(mixed % 13);
}

inline int reduced_at(const tuccl_call &call, uint32_t ranks, size_t element) {
    int result = value_at(call, ranks, 0, element);
    for (uint32_t rank = 1; rank < ranks; rank++) {
        const int value = value_at(call, ranks, rank, element);
        switch (call.reduction) {
        case TUCCL_PROD:
            result *= value;
            break;
        case TUCCL_MAX:
            result = std::max(result, value);
            break;
        case TUCCL_MIN:
            result = std::min(result, value);
            break;
        default:
            result += value;
        }
    }
    return call.reduction == TUCCL_AVG ? result / static_cast<int>(ranks) : result;
}

struct Sizes {
    size_t send;
    size_t receive;
};

// Elements that each rank sends and receives.
inline Sizes elements_of(const tuccl_call &call, uint32_t ranks) {
    const size_t larger = call.count * (tuccl_is_divided(call.operation) ? ranks : 1);
    return {tuccl_input_is_part(call.operation) ? call.count : larger,
            tuccl_output_is_part(call.operation) ? call.count : larger};
}

// What `rank` must end with at an element of its result.
inline int expected_at(const tuccl_call &call, uint32_t ranks, uint32_t rank, size_t element) {
    const size_t count = call.count;
    const auto sender = static_cast<uint32_t>(element / std::max<size_t>(1, count));
    const size_t first = tuccl_splits(call.operation) ? rank * count : 0;
    if (tuccl_joins(call.operation))
        return value_at(call, ranks, sender, first + element % count);
    return tuccl_is_reduction(call.operation) ? reduced_at(call, ranks, first + element)
                                              : value_at(call, ranks, call.root, first + element);
}

} // namespace tuccl_tests

#endif
