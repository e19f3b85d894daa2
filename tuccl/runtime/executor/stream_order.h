// The order of one communicator's calls on several streams: each behind the one before, as NCCL
// does it among its own.
#ifndef TUCCL_EXECUTOR_STREAM_ORDER_H
#define TUCCL_EXECUTOR_STREAM_ORDER_H

#include "executor.h"
#include "nccl_abi.h"

namespace tuccl {

// Streams that are being captured are ordered within their capture only: what is recorded runs at
// another time than what is not.
class StreamOrder {
  public:
    // Orders what comes next on `stream` behind the last call; it is then the last call itself.
    // 0, or a cudaError_t.
    int next(tuccl_device_comm *device, ncclStream stream) {
        if (has_eager_ && !last_was_captured_ && stream == eager_)
            return 0;
        return switch_to(device, stream);
    }

  private:
    int switch_to(tuccl_device_comm *device, ncclStream stream);

    ncclStream eager_ = nullptr;
    ncclStream captured_ = nullptr;
    uint64_t capture_ = 0;
    bool has_eager_ = false;
    bool last_was_captured_ = false;
};

} // namespace tuccl

#endif
