#include "stream_order.h"

#include "device_exchange.h"

namespace tuccl {

int StreamOrder::switch_to(tuccl_device_comm *device, ncclStream stream) {
    const tuccl_stream_state state = tuccl_device_stream(stream);
    return state.capture != 0 ? switch_captured(device, stream, state.capture)
                              : switch_eager(device, stream, state.number);
}

int StreamOrder::switch_captured(tuccl_device_comm *device, ncclStream stream, uint64_t capture) {
    const bool follows = capture == capture_ && captured_ != stream;
    const ncclStream before = captured_;
    last_ = Last::kCaptured;
    captured_ = stream;
    capture_ = capture;
    return follows ? tuccl_device_order(device, before, stream) : 0;
}

int StreamOrder::switch_eager(tuccl_device_comm *device, ncclStream stream, uint64_t number) {
    int error = 0;
    if (has_eager_ && (stream != eager_ || number != eager_number_))
        error = is_remembered_ ? tuccl_device_order_remembered(device, stream)
                               : tuccl_device_order(device, eager_, stream);
    last_ = Last::kEager;
    has_eager_ = true;
    is_remembered_ = false;
    eager_ = stream;
    eager_number_ = number;
    return error;
}

int StreamOrder::remember(tuccl_device_comm *device) {
    const int error = tuccl_device_remember(device, eager_);
    is_remembered_ = error == 0;
    return error;
}

} // namespace tuccl
