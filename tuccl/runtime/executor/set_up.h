// Set-up of a communicator that NCCL has created: all ranks agree whether the executor serves it.
#ifndef TUCCL_EXECUTOR_SET_UP_H
#define TUCCL_EXECUTOR_SET_UP_H

#include "origin.h"

#include <atomic>

namespace tuccl {

class Latch;

// All ranks call it; it waits for all of them. `cancelled` ends waiting; `made_ready` is counted
// down after the calls that may disturb kernels on other devices of this process. Both may be NULL.
// Fails (ncclResult_t) only if this rank could not tell its peers that it cannot serve: to continue
// alone would hang them.
int set_up(ncclComm_t comm, const Origin &origin, const std::atomic<bool> *cancelled,
           Latch *made_ready);

} // namespace tuccl

#endif
