// Errors of CUDA calls as exceptions: one for what failed, one for what never ended.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace p2p {

// A call failed; the message says which and why, in half a line.
struct CudaError : std::runtime_error {
    CudaError(cudaError_t code, const std::string &what)
        : std::runtime_error(what + ": " + cudaGetErrorString(code) + " (" +
                             cudaGetErrorName(code) + ")"),
          code(code) {
    }
    cudaError_t code;
};

// Work did not end within its time. Nothing on these GPUs can be relied on any more.
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
