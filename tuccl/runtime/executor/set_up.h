// From a communicator that NCCL has made to one that the executor serves, or to the knowledge, the
// same on all of its ranks, that it does not.
#ifndef TUCCL_EXECUTOR_SET_UP_H
#define TUCCL_EXECUTOR_SET_UP_H

#include "nccl_abi.h"

#include <atomic>

namespace tuccl {

// All ranks call it; it waits for the others. `cancelled` ends waiting, NULL where nobody can
// cancel. Fails (ncclResult_t) only where this rank could not even tell the others that it cannot
// serve: going on alone would hang them.
int set_up(ncclComm_t comm, const std::atomic<bool> *cancelled);

} // namespace tuccl

#endif
