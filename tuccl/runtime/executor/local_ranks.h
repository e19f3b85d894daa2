// The ranks that one communicator has in this process. Their kernels write to one another's staging
// memory, so it is freed when the last of them is gone, as NCCL itself does it; a rank in another
// process keeps what it has opened of ours.
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
    // Equal numbers mean the same communicator.
    static std::shared_ptr<LocalRanks> join(uint64_t number);

    LocalRanks() = default;
    // Frees what was left to it, after what runs there has ended.
    ~LocalRanks();
    LocalRanks(const LocalRanks &) = delete;
    LocalRanks &operator=(const LocalRanks &) = delete;

    // Leaves a rank's device side behind.
    void leave(tuccl_device_comm *device);

  private:
    std::mutex mutex_;
    std::vector<tuccl_device_comm *> left_;
};

// Freeing device memory waits for whatever runs on the device, and beside an aborted communicator
// others may hang that the same thread is about to abort. So what an abort leaves is freed when the
// next communicator has started, or ended as it should.
void free_later(std::shared_ptr<LocalRanks> ranks);
void free_left();

} // namespace tuccl

#endif
