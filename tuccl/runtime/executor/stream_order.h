// The order of one communicator's calls on several streams: each runs after the previous one, as in
// NCCL.
//
// A stream may be destroyed while a call on it runs, and its address reused. So the end of a call
// is recorded at once, as in NCCL, and the stream is never used later.
#ifndef TUCCL_EXECUTOR_STREAM_ORDER_H
#define TUCCL_EXECUTOR_STREAM_ORDER_H

#include "executor.h"
#include "nccl_abi.h"

namespace tuccl {

// Captured streams are ordered within their capture only, since captured work runs at another time.
class StreamOrder {
  public:
    // Called before a call: orders it behind the last one. Returns 0 or a cudaError_t.
    int before(tuccl_device_comm *device, ncclStream stream) {
        if (last_ == Last::kEager && stream == eager_ && lives_for_ever(stream))
            return 0;
        return switch_to(device, stream);
    }

    // Called after it is enqueued: it becomes the last one.
    int after(tuccl_device_comm *device) {
        if (last_ != Last::kEager || lives_for_ever(eager_))
            return 0;
        return remember(device);
    }

  private:
    enum class Last { kNone, kEager, kCaptured };

    // The legacy stream, by either name: it needs no event after every call, which would cost time.
    static bool lives_for_ever(ncclStream stream) {
        return reinterpret_cast<uintptr_t>(stream) <= 1;
    }
    int switch_to(tuccl_device_comm *device, ncclStream stream);
    int switch_captured(tuccl_device_comm *device, ncclStream stream, uint64_t capture);
    int switch_eager(tuccl_device_comm *device, ncclStream stream, uint64_t number);
    int remember(tuccl_device_comm *device);

    Last last_ = Last::kNone;
    bool has_eager_ = false;
    bool is_remembered_ = false; // Whether the end of the last eager call is recorded.
    ncclStream eager_ = nullptr;
    uint64_t eager_number_ = 0;
    ncclStream captured_ = nullptr;
    uint64_t capture_ = 0;
};

} // namespace tuccl

#endif
