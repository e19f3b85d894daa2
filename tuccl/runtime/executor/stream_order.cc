#include "stream_order.h"

#include "executor.h"
#include "real_nccl.h"

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

SideStreams::SideStreams(tuccl_device_comm *device, uint32_t most, uint64_t count,
                         ncclStream stream)
    : device_(device), stream_(stream) {
    const uint64_t capture = count > 0 ? tuccl_device_stream(stream).capture : 0;
    const uint32_t first = capture == 0 ? 0 : most;
    for (uint32_t i = 0; i < count && capture != 0; i++) {
        const uint64_t other =
            tuccl_device_stream(tuccl_device_side_stream(device, first + i)).capture;
        if (other != 0 && other != capture)
            return;
    }
    first_ = first;
    count_ = count;
}

ncclStream SideStreams::of(uint64_t piece) const {
    return tuccl_device_side_stream(device_, first_ + static_cast<uint32_t>(piece % count_));
}

int SideStreams::fork(uint32_t mark) const {
    if (count_ == 0)
        return kNcclSuccess;
    int error = tuccl_device_mark(device_, mark, stream_);
    for (uint32_t i = 0; i < count_ && error == 0; i++)
        error = tuccl_device_await(device_, mark, of(i));
    return error == 0 ? kNcclSuccess : kNcclUnhandledCudaError;
}

int SideStreams::join(uint32_t first_mark) const {
    int error = 0;
    for (uint32_t i = 0; i < count_ && error == 0; i++) {
        error = tuccl_device_mark(device_, first_mark + i, of(i));
        if (error == 0)
            error = tuccl_device_await(device_, first_mark + i, stream_);
    }
    return error == 0 ? kNcclSuccess : kNcclUnhandledCudaError;
}

} // namespace tuccl
