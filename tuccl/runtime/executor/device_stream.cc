// Properties of a stream for ordering calls.
#include "executor.h"

#include <cuda_runtime_api.h>

// The id is queried outside of captures only: CUDA answers cudaErrorStreamCaptureUnsupported
// for a stream that takes part in one, which its documentation of cudaStreamGetId does not say.
struct tuccl_stream_state tuccl_device_stream(void *stream) {
    const auto asked = static_cast<cudaStream_t>(stream);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long number = 0;
    unsigned long long capture = 0;
    cudaError_t error = cudaStreamGetCaptureInfo(asked, &status, &capture);
    if (error == cudaSuccess && status == cudaStreamCaptureStatusNone)
        error = cudaStreamGetId(asked, &number);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return {number, status == cudaStreamCaptureStatusActive ? capture : 0};
}
