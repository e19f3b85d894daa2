// What a job lets the executor's schedules take; the same on all ranks of a communicator.
#ifndef TUCCL_EXECUTOR_SCHEDULE_BOUNDS_H
#define TUCCL_EXECUTOR_SCHEDULE_BOUNDS_H

#include "nccl_config.h"

#include <cstdint>

namespace tuccl {

constexpr uint16_t kAnyLanes = UINT16_MAX;

struct ScheduleBounds {
    uint16_t blocks = kAnyBlocks; // Threadblocks of a kernel: larger kernels get as many.
    uint16_t lanes = kAnyLanes;   // Of a rail: schedules of more are left out.
};

} // namespace tuccl

#endif
