// The ranks that one communicator has in this process. Their kernels write to one another's staging
// memory, so it is freed when the last of them is gone, as NCCL itself does it; a rank in another
// process keeps what it has opened of ours.
//
// Freeing waits for everything that runs on a device. A rank that left earlier may have called
// another communicator's collective since then, which ends when the rank that is last to leave,
// behind its destroy, calls it too. So where the last rank is not the only one here, it does not
// wait: a thread that nobody waits for frees the memory (apart.h), and calls NCCL's ncclCommDestroy
// before that, which waits for all these devices as well. Why that thread comes to its end: while
// memory of a device is freed, CUDA launches nothing there, but what runs there already needs calls
// of other ranks alone, and these launch on their own devices. They come to these calls, because
// ranks call their communicators in one order, as NCCL asks of them. Only one device at a time is
// held up so; two could hold up what each other's kernels wait for.
#ifndef TUCCL_EXECUTOR_LOCAL_RANKS_H
#define TUCCL_EXECUTOR_LOCAL_RANKS_H

#include "executor.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace tuccl {

class LocalRanks {
  public:
    // Equal numbers mean the same communicator. All join before any of them can leave.
    static std::shared_ptr<LocalRanks> join(uint64_t number);

    LocalRanks() = default;
    LocalRanks(const LocalRanks &) = delete;
    LocalRanks &operator=(const LocalRanks &) = delete;

    // Leaves a rank's device side behind; NULL where it has none. True: it was the last rank.
    bool leave(tuccl_device_comm *device);
    // How many there are.
    size_t count();
    // What was left, after what runs there has ended. For the last rank.
    void free();

  private:
    std::mutex mutex_;
    size_t joined_ = 0;
    size_t gone_ = 0;
    std::vector<tuccl_device_comm *> left_;
};

// Beside an aborted communicator others may hang that the same thread is about to abort. So what an
// abort leaves is freed when the next communicator has started, or ended as it should; this too
// waits for nothing.
void free_later(int device, std::shared_ptr<LocalRanks> ranks);
void free_left();

} // namespace tuccl

#endif
