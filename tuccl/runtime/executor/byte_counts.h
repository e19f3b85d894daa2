// Bytes of elements, and roundings of counts of bytes. Host code.
#ifndef TUCCL_EXECUTOR_BYTE_COUNTS_H
#define TUCCL_EXECUTOR_BYTE_COUNTS_H

#include "executor.h"

#include <cstdint>

namespace tuccl {

// Of an element of enum tuccl_type.
inline uint64_t type_bytes(uint32_t type) {
    static constexpr uint8_t kBytes[TUCCL_TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return kBytes[type];
}

// Without overflow for any value.
inline uint64_t divided_up(uint64_t value, uint64_t by) {
    return value / by + (value % by != 0 ? 1 : 0);
}

inline uint64_t round_up(uint64_t value, uint64_t grain) {
    return (value + grain - 1) / grain * grain;
}

} // namespace tuccl

#endif
