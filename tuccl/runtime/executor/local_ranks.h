// The ranks of one communicator in this process. Their kernels write to each other's staging
// memory, so it is freed when the last of them has left, as in NCCL; a rank in another process
// keeps its mapping.
//
// Freeing waits for everything that runs on a device. A rank that left earlier may have called
// another communicator's collective since then, which ends when the rank that is last to leave,
// behind its destroy, calls it too. So where the last rank is not the only one here, it does not
// wait: a thread that nobody waits for frees the memory (run_detached), and calls NCCL's
// ncclCommDestroy before that, which waits for all these devices as well. Why that thread comes to
// its end: while memory of a device is freed, CUDA launches nothing there, but what runs there
// already needs calls of other ranks alone, and these launch on their own devices. They come to
// these calls, because ranks call their communicators in one order, as NCCL asks of them. Only one
// device at a time is held up so; two could hold up what each other's kernels wait for.
#ifndef TUCCL_EXECUTOR_LOCAL_RANKS_H
#define TUCCL_EXECUTOR_LOCAL_RANKS_H

#include "executor.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace tuccl {

class LocalRanks {
  public:
    // Joins the communicator with this number. All ranks join before any can leave.
    static std::shared_ptr<LocalRanks> join(uint64_t number);

    LocalRanks() = default;
    LocalRanks(const LocalRanks &) = delete;
    LocalRanks &operator=(const LocalRanks &) = delete;

    // Hands over a rank's device side, NULL without one. Returns whether it was the last rank.
    bool leave(tuccl_device_comm *device);
    // Number of ranks.
    size_t count();
    // Frees all device sides after their kernels have ended. For the last rank.
    void free();

  private:
    std::mutex mutex_;
    size_t joined_ = 0;
    size_t gone_ = 0;
    std::vector<tuccl_device_comm *> left_;
};

// After an abort, the same thread may be about to abort other hanging communicators. So its memory
// is freed when the next communicator has started or ended normally, again without waiting.
void free_later(int device, std::shared_ptr<LocalRanks> ranks);
void free_left();

// Runs `work`, which waits for devices, in a detached thread whose current device is `device`, one
// at a time. Returns true when it is done, false after a quarter of a second: then it completes
// later, and its captures must stay valid.
bool run_detached(int device, std::function<void()> work);

} // namespace tuccl

#endif
