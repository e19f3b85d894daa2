// Errors of CUDA calls as exceptions: for failed calls, and for work that does not end.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace p2p {

// Thrown when a call fails; the message names the call and the error.
struct CudaError : std::runtime_error {
    CudaError(cudaError_t code, const std::string &what)
        : std::runtime_error(what + ": " + cudaGetErrorString(code) + " (" +
                             cudaGetErrorName(code) + ")"),
          code(code) {
    }
    cudaError_t code;
};

// Thrown when work did not end in time. The GPUs are then in an unknown state.
struct HungError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline void check(cudaError_t code, const char *what) {
    if (code != cudaSuccess) {
        (void)cudaGetLastError(); // or the next call would report it again
        throw CudaError(code, what);
    }
}

} // namespace p2p
