// What the .cc files of the CUDA side need of its runtime, for tests that define these functions
// themselves.
#ifndef TUCCL_TESTS_CUDA_RUNTIME_API_H
#define TUCCL_TESTS_CUDA_RUNTIME_API_H

#include <cstddef>

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMapBufferObjectFailed = 205,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureImplicit = 906
};
enum cudaMemcpyKind { cudaMemcpyDeviceToHost = 2, cudaMemcpyDefault = 4 };
enum : unsigned {
    cudaHostAllocPortable = 1,
    cudaHostAllocMapped = 2,
    cudaStreamNonBlocking = 1,
    cudaIpcMemLazyEnablePeerAccess = 1,
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone = 0,
    cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2
};
using cudaStream_t = struct CUstream_st *;
struct cudaIpcMemHandle_t {
    char reserved[64];
};

cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetLastError();
cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
cudaError_t cudaHostGetDevicePointer(void **there, void *memory, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *number);
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                     unsigned long long *capture);
cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory);
cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void *memory);

#endif
