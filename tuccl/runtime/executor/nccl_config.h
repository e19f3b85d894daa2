// What a communicator's configuration and NCCL's variables say to the executor, too.
#ifndef TUCCL_EXECUTOR_NCCL_CONFIG_H
#define TUCCL_EXECUTOR_NCCL_CONFIG_H

#include "nccl_abi.h"

#include <cstdint>

namespace tuccl {

// Whether the configuration lets what is split from its communicator share its resources.
bool shares_resources(const ncclConfig *config);

// No bound on the threadblocks of a kernel.
constexpr uint16_t kAnyBlocks = UINT16_MAX;

// Returns the most threadblocks (`maxCTAs`) that the configuration allows a kernel of NCCL.
uint16_t most_blocks(const ncclConfig *config);

// Returns the bound of NCCL_MAX_CTAS, which goes before the configuration's for NCCL, or else
// `of_config`, under that of NCCL_MAX_NCHANNELS.
uint16_t bounded_by_variables(uint16_t of_config);

constexpr uint16_t kAnyLanes = UINT16_MAX;

// What a job lets the executor's schedules take; the same on all ranks of a communicator.
struct ScheduleBounds {
    uint16_t blocks = kAnyBlocks; // Threadblocks of a kernel: larger kernels get as many.
    uint16_t lanes = kAnyLanes;   // Of a rail: schedules of more are left out.
};

} // namespace tuccl

#endif
