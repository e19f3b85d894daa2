// The order of one communicator's calls on several streams: each runs after the previous one, as in
// NCCL.
//
// A stream may be destroyed while a call on it runs, and its address reused. So the end of a call
// is recorded at once, as in NCCL, and the stream is never used later.
#ifndef TUCCL_EXECUTOR_STREAM_ORDER_H
#define TUCCL_EXECUTOR_STREAM_ORDER_H

#include "executor.h"
#include "nccl_abi.h"

#include <cstdint>

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

// Streams of the communicator's own, beside a call's stream, for what overlaps with the work there.
class SideStreams {
  public:
    // Calls may be made while a capture of other calls is open, whose streams belong to it:
    // captured calls have streams of their own. While these belong to another capture, there are
    // none. `device`: with two streams for each of `most`. `count`: of streams that the call uses.
    SideStreams(tuccl_device_comm *device, uint32_t most, uint64_t count, ncclStream stream);

    // Whether there are any; else all of a call follows one another on its stream.
    explicit operator bool() const {
        return count_ > 0;
    }
    // The stream of a piece of the call; pieces take them in turn.
    ncclStream of(uint64_t piece) const;

    // They start behind the job's work, and the job's further work behind theirs. Use one mark, and
    // one for each stream. Return an ncclResult_t.
    int fork(uint32_t mark) const;
    int join(uint32_t first_mark) const;

  private:
    tuccl_device_comm *device_;
    ncclStream stream_;
    uint32_t first_ = 0;
    uint64_t count_ = 0;
};

} // namespace tuccl

#endif
