// The GPUs of this host, with the memory and streams that measurements use.
#pragma once

#include "kernels.h"
#include "report.h"

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

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

using Clock = std::chrono::steady_clock;

constexpr int kSlots = 64; // concurrent transfers, and GPUs
constexpr size_t kAlignment = 4096;

// Data that the host and all GPUs share, in pinned memory.
struct Control {
    uint32_t gate;
    uint32_t missed[kSlots];
    uint32_t mismatch[kSlots];
    LatencyResult latency[kSlots];
};

struct Gpu {
    int device = 0;
    GpuFacts facts;
    char *send = nullptr;
    char *receive = nullptr;
    char *host_send = nullptr;
    char *host_receive = nullptr;
    uint32_t *flags = nullptr;
    std::vector<cudaStream_t> streams; // one for every GPU of the host, and one more

    // Seed of the data that this GPU sends, different for every GPU.
    uint32_t seed() const {
        return static_cast<uint32_t>(device + 1) * 0x9e3779b9u;
    }
    uint32_t host_seed() const {
        return ~seed();
    }
    void use() const;
};

// Flags of latency kernels. Latency depends on the position in a GPU's memory, so every sample uses
// another position.
constexpr size_t kFlagPositions = 61;
constexpr size_t kFlagStride = 1056; // words
constexpr size_t kFlagBytes = kFlagPositions * kFlagStride * sizeof(uint32_t);

// The end of the process frees its resources, also after a transfer that never ended.
struct Machine {
    std::vector<Gpu> gpus;
    std::vector<std::vector<bool>> access; // whether two GPUs can access each other's memory
    Control *control = nullptr;

    std::vector<int> usable() const; // GPUs that are measured
};

// Opens all GPUs at once, each in a thread. Errors of a GPU or a pair are in the report. Throws
// CudaError when no GPU can be used.
Machine open_machine(const Options &options, Report &report);

// Waits with a time limit for a stream to become empty. Throws CudaError, HungError.
void wait_for(cudaStream_t stream, const char *what);

} // namespace p2p
