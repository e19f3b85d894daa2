// Set-up of a communicator that NCCL has created: all ranks agree whether the executor serves it.
#ifndef TUCCL_EXECUTOR_SET_UP_H
#define TUCCL_EXECUTOR_SET_UP_H

#include "origin.h"

#include <atomic>

namespace tuccl {

class Latch;

// How a communicator starts.
struct Start {
    const std::atomic<bool> *cancelled; // Ends waiting.
    bool blocks;                        // Whether the communicator does.
    // Counted down after the calls that may disturb kernels on other devices of this process; may
    // be NULL.
    Latch *made_ready;
};

// All ranks call it; it waits for all of them.
// Fails (ncclResult_t) only if this rank could not tell its peers that it cannot serve: to continue
// alone would hang them.
int set_up(ncclComm_t comm, const Origin &origin, const Start &start);

} // namespace tuccl

#endif
