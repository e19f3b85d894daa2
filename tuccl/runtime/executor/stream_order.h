// The order of one communicator's calls on several streams: each behind the one before, as NCCL
// does it among its own.
//
// A stream may be destroyed while a call on it runs, and another one may then have its address. So
// the end of a call is remembered at once, as NCCL does it, and a stream is never touched later.
#ifndef TUCCL_EXECUTOR_STREAM_ORDER_H
#define TUCCL_EXECUTOR_STREAM_ORDER_H

#include "executor.h"
#include "nccl_abi.h"

namespace tuccl {

// Streams that are being captured are ordered within their capture only: what is recorded runs at
// another time than what is not.
class StreamOrder {
  public:
    // Before a call: orders it behind the last one. 0, or a cudaError_t.
    int before(tuccl_device_comm *device, ncclStream stream) {
        if (last_ == Last::kEager && stream == eager_ && lives_for_ever(stream))
            return 0;
        return switch_to(device, stream);
    }

    // After it, when it is on the stream: it is the last one then.
    int after(tuccl_device_comm *device) {
        if (last_ != Last::kEager || lives_for_ever(eager_))
            return 0;
        return remember(device);
    }

  private:
    enum class Last { kNone, kEager, kCaptured };

    // The legacy stream, by either name. An event after every call costs, and here is not needed.
    static bool lives_for_ever(ncclStream stream) {
        return reinterpret_cast<uintptr_t>(stream) <= 1;
    }
    int switch_to(tuccl_device_comm *device, ncclStream stream);
    int switch_captured(tuccl_device_comm *device, ncclStream stream, uint64_t capture);
    int switch_eager(tuccl_device_comm *device, ncclStream stream, uint64_t number);
    int remember(tuccl_device_comm *device);

    Last last_ = Last::kNone;
    bool has_eager_ = false;
    bool is_remembered_ = false; // The end of the last eager call.
    ncclStream eager_ = nullptr;
    uint64_t eager_number_ = 0;
    ncclStream captured_ = nullptr;
    uint64_t capture_ = 0;
};

} // namespace tuccl

#endif
