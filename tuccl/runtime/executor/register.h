// Which communicators of this process the executor serves.
#ifndef TUCCL_EXECUTOR_REGISTER_H
#define TUCCL_EXECUTOR_REGISTER_H

#include "communicator.h"

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace tuccl {

class Register {
  public:
    static Register &of_process();

    void add(ncclComm_t nccl, Serving serving);

    // NULL where NCCL alone serves it. Takes no lock when the thread asked lately. The answer may
    // be taken apart meanwhile: use it under InUse.
    Communicator *find(ncclComm_t nccl);

    // From here on calls go to NCCL; NULL when it was not served. What was begun goes on.
    Communicator *take(ncclComm_t nccl);
    // Takes a taken one apart, after the last call has left it. Its memory is left to the ranks of
    // this process: returns them if this one was the last of them, else NULL.
    std::shared_ptr<LocalRanks> dispose(Communicator *communicator);

    // Calls visit for each that is served; none is taken meanwhile.
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
    // Changes with every addition and removal, so that threads can remember answers.
    std::atomic<uint64_t> generation_{1};
};

} // namespace tuccl

#endif
