// The first calls along a rail. NCCL connects an algorithm's ranks, and takes memory for that, in
// the first call that it runs by it: the call waits inside NCCL for the others. So the executor
// makes such calls itself before those of the job, small ones, and larger ones where NCCL's choice
// depends on the size. A thread makes them, because NCCL does not return from a call whose other
// ranks do not come, unless its communicator is aborted.
#ifndef TUCCL_EXECUTOR_RAIL_WARM_UP_H
#define TUCCL_EXECUTOR_RAIL_WARM_UP_H

#include "rails.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace tuccl {

struct WarmUp {
    std::vector<ncclComm_t> lanes;
    ncclComm_t network; // Of all ranks; NULL without sends and receives.
    std::vector<RailCall> calls;
    tuccl_rail_request *request;
    uint32_t nodes;
    uint32_t node;
    uint32_t ranks;
    uint32_t rank;
    RailMemory memory;
};

struct WarmUpEnd {
    const char *fault; // NULL: all calls gave right results.
    bool is_stuck;     // A call is still inside NCCL, or a kernel on the device.
};

// All ranks make the same calls in the same order. `obstacle` returns why to end
// waiting, or NULL. `abort` aborts all communicators; it is called after a fault.
WarmUpEnd warm_up_rail(const WarmUp &warm_up, const std::function<const char *()> &obstacle,
                       const std::function<void()> &abort);

} // namespace tuccl

#endif
