// What the .cc files of the CUDA side need of its runtime, for tests that define these functions
// themselves.
#ifndef TUCCL_TESTS_CUDA_RUNTIME_API_H
#define TUCCL_TESTS_CUDA_RUNTIME_API_H

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureImplicit = 906
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone = 0,
    cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2
};
using cudaStream_t = struct CUstream_st *;

cudaError_t cudaGetLastError();
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *number);
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                     unsigned long long *capture);

#endif
