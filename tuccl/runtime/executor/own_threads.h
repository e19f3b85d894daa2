// Threads of the executor's own that work on a communicator's device.
#ifndef TUCCL_EXECUTOR_OWN_THREADS_H
#define TUCCL_EXECUTOR_OWN_THREADS_H

#include "nccl_abi.h"

#include <thread>
#include <vector>

namespace tuccl {

// Makes a communicator's device that of the calling thread, as tuccl_device_enter says.
void enter_device_of(ncclComm_t comm);

// Communicators of NCCL that are aborted at the same time.
//
// ncclCommAbort ends a communicator's kernels and frees its memory, for which CUDA waits until no
// kernel runs on the device: for ever, if one hangs on a communicator whose abort would come next.
class Aborting {
  public:
    Aborting() = default;
    // Starts to abort each, in a thread of its own: before 2.22 NCCL frees each at once, also in a
    // group (src/init.cc).
    explicit Aborting(const std::vector<ncclComm_t> &comms);
    // Waits until all are gone.
    ~Aborting();
    Aborting(Aborting &&) = default;
    Aborting &operator=(Aborting &&) = delete;

  private:
    std::vector<std::thread> threads_;
};

} // namespace tuccl

#endif
