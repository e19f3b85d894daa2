// From a communicator that NCCL has made to one that the executor serves, or to the knowledge, the
// same on all of its ranks, that it does not.
#ifndef TUCCL_EXECUTOR_SET_UP_H
#define TUCCL_EXECUTOR_SET_UP_H

#include "origin.h"

#include <atomic>

namespace tuccl {

class Latch;

// All ranks call it; it waits for the others. `cancelled` ends waiting; `made_ready` is counted
// down when what may disturb kernels on other devices of this process is over. Both may be NULL.
// Fails (ncclResult_t) only where this rank could not even tell the others that it cannot serve:
// going on alone would hang them.
int set_up(ncclComm_t comm, const Origin &origin, const std::atomic<bool> *cancelled,
           Latch *made_ready);

} // namespace tuccl

#endif
