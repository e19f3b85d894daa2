// What is told of streams in and out of captures, over a CUDA that refuses a capturing stream's
// number, as the real one does.
//
//   drive_device_stream
#include "executor.h"

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>

// A stream's state stands where its handle points.
struct CUstream_st {
    cudaStreamCaptureStatus status;
    bool is_usable;
};

namespace {

constexpr unsigned long long kNumber = 7;
constexpr unsigned long long kCapture = 11;
int left_errors = 0;

void expect(const char *what, CUstream_st stream, uint64_t number, uint64_t capture) {
    const tuccl_stream_state found = tuccl_device_stream(&stream);
    if (found.number == number && found.capture == capture && left_errors == 0)
        return;
    std::fprintf(stderr, "%s: number %llu, capture %llu, %d errors left\n", what,
                 static_cast<unsigned long long>(found.number),
                 static_cast<unsigned long long>(found.capture), left_errors);
    std::exit(1);
}

} // namespace

cudaError_t cudaGetLastError() {
    left_errors = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *number) {
    if (stream->status == cudaStreamCaptureStatusNone) {
        *number = kNumber;
        return cudaSuccess;
    }
    // CUDA ends a capture in which something is done that is not allowed.
    stream->status = cudaStreamCaptureStatusInvalidated;
    left_errors += 1;
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                     unsigned long long *capture) {
    if (!stream->is_usable) {
        left_errors += 1;
        return cudaErrorStreamCaptureImplicit;
    }
    *status = stream->status;
    if (stream->status == cudaStreamCaptureStatusActive)
        *capture = kCapture;
    return cudaSuccess;
}

int main() {
    expect("eager", {cudaStreamCaptureStatusNone, true}, kNumber, 0);
    expect("capturing", {cudaStreamCaptureStatusActive, true}, 0, kCapture);
    expect("invalidated", {cudaStreamCaptureStatusInvalidated, true}, 0, 0);
    expect("legacy beside a capture", {cudaStreamCaptureStatusNone, false}, 0, 0);
    return 0;
}
