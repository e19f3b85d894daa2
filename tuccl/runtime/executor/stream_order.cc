#include "stream_order.h"

#include "device_exchange.h"

namespace tuccl {

namespace {

// A stream that was destroyed since its last call: who destroys it has waited for it, or does not
// care.
bool stream_is_gone(int error) {
    constexpr int kInvalidResourceHandle = 400;
    constexpr int kContextIsDestroyed = 709;
    return error == kInvalidResourceHandle || error == kContextIsDestroyed;
}

int order(tuccl_device_comm *device, ncclStream before, ncclStream after) {
    if (before == after)
        return 0;
    const int error = tuccl_device_order(device, before, after);
    return stream_is_gone(error) ? 0 : error;
}

} // namespace

int StreamOrder::switch_to(tuccl_device_comm *device, ncclStream stream) {
    const uint64_t capture = tuccl_device_capture(stream);
    int error = 0;
    if (capture != 0) {
        if (capture == capture_)
            error = order(device, captured_, stream);
        else if (has_eager_ && eager_ != stream && tuccl_device_capture(eager_) == capture)
            error = order(device, eager_, stream);
        captured_ = stream;
        capture_ = capture;
    } else {
        if (has_eager_ && eager_ != stream && tuccl_device_capture(eager_) == 0)
            error = order(device, eager_, stream);
        eager_ = stream;
        has_eager_ = true;
    }
    last_was_captured_ = capture != 0;
    return error;
}

} // namespace tuccl
