// Bytes of elements and of protocols' lines, and roundings of counts of bytes. Host code.
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

// Data that lies in whole lines of a protocol, and these lines: two of LL, a warp's of LL128.
struct WireUnit {
    uint64_t data_bytes;
    uint64_t line_bytes;

    uint64_t lines_of(uint64_t bytes) const {
        return divided_up(bytes, data_bytes) * line_bytes;
    }
};
constexpr WireUnit kWireUnits[TUCCL_PROTOCOLS] = {{16, 32}, {480, 512}, {16, 16}};

} // namespace tuccl

#endif
