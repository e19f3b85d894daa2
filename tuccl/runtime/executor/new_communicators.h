// Set-up of new communicators, between their creation by NCCL and their return to the caller.
#ifndef TUCCL_EXECUTOR_NEW_COMMUNICATORS_H
#define TUCCL_EXECUTOR_NEW_COMMUNICATORS_H

#include "origin.h"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace tuccl {

// Synchronization of one process's threads at set-up, on the host.
//
// Some of CUDA's calls (allocation, peer access) may wait for whatever runs on a device. One
// process may use several devices: a running kernel that waits for a rank which is still in such a
// call would never end. So all ranks of one process finish these calls before any of them launches
// a kernel.
class Latch {
  public:
    explicit Latch(size_t count) : left_(count) {
    }
    void count_down();
    void wait();

  private:
    std::mutex mutex_;
    std::condition_variable open_;
    size_t left_;
};

// One thread's arrival at a latch: it counts down once, when it waits or is destroyed.
class Arrival {
  public:
    explicit Arrival(Latch *latch) : latch_(latch) {
    }
    ~Arrival() {
        if (latch_ != nullptr)
            latch_->count_down();
    }
    Arrival(const Arrival &) = delete;
    Arrival &operator=(const Arrival &) = delete;

    void wait_for_others() {
        if (latch_ == nullptr)
            return;
        Latch *latch = latch_;
        latch_ = nullptr;
        latch->count_down();
        latch->wait();
    }

  private:
    Latch *latch_;
};

// Waits until `threads` threads have called it with this number, or `gives_up` returns true.
void meet_in_process(uint64_t number, size_t threads, const std::function<bool()> &gives_up);

// How a communicator starts.
struct Start {
    const std::atomic<bool> *cancelled; // Ends waiting.
    bool blocks;                        // Whether the communicator does.
    // Counted down after the calls that may disturb kernels on other devices of this process; may
    // be NULL.
    Latch *made_ready;
};

// Sets up a communicator that NCCL has created: all ranks agree whether the executor serves it. All
// call it; it waits for all of them. NCCL may start it again (communicator_settings.h): then `comm`
// and `origin` are those of the second.
// Fails (ncclResult_t) only if this rank could not tell its peers that it cannot serve: to continue
// alone would hang them.
int set_up(std::atomic<ncclComm_t> *comm, Origin *origin, const Start &start);

// A communicator that NCCL was called to create.
struct NewCommunicator {
    ncclComm_t *comm;
    Origin origin;
};

// Sets up the communicators of one call or group, given NCCL's result: success or in progress. Then
// set-up continues in the background until async_error reports its end. Returns the caller's
// result. NULL communicators (of a split) are skipped.
int set_up_new(const std::vector<NewCommunicator> &created, int result);

// ncclCommGetAsyncError: until set-up has ended, a communicator is in progress.
int async_error(ncclComm_t comm, int *error);

// Ends set-up, if any. Returns the communicator, which NCCL may have started again since.
ncclComm_t cancel_set_up(ncclComm_t comm);

} // namespace tuccl

#endif
