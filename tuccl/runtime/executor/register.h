// The communicators of this process that the executor serves.
#ifndef TUCCL_EXECUTOR_REGISTER_H
#define TUCCL_EXECUTOR_REGISTER_H

#include "communicator.h"
#include "singleton.h"

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tuccl {

class Register {
  public:
    void add(ncclComm_t nccl, Serving serving);

    // Returns NULL where NCCL alone serves it. Takes no lock if the thread's last result is still
    // valid. The result may be destroyed meanwhile: use it under InUse.
    Communicator *find(ncclComm_t nccl);

    // Removes a communicator, so that further calls go to NCCL; NULL if it was not served. Running
    // calls continue.
    Communicator *take(ncclComm_t nccl);
    // Destroys a removed communicator after its last call has returned. Its memory passes to the
    // ranks of this process: returns them if this was the last rank, else NULL.
    std::shared_ptr<LocalRanks> dispose(Communicator *communicator);

    // Served communicators in an order that is the same on all ranks.
    std::vector<std::pair<Communicator *, ncclComm_t>> in_order();

    // Calls visit for each served communicator; none is removed meanwhile.
    template <typename Visit> void for_each(Visit visit) {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (const auto &[nccl, communicator] : served_)
            visit(*communicator);
    }

  private:
    Communicator *find_locked(ncclComm_t nccl);

    std::mutex mutex_;
    std::unordered_map<ncclComm_t, Communicator *> served_;
    std::vector<std::unique_ptr<Communicator>> all_;
    std::vector<Communicator *> free_;
    // Changes with every addition and removal, so that threads can cache results.
    std::atomic<uint64_t> generation_{1};
};

// Starts the process's only watchdog thread, once; it ends with the process. It polls NCCL for
// errors of served communicators and then ends their kernels, which would otherwise wait for ever
// for a lost rank.
void start_watchdog();

} // namespace tuccl

#endif
