// Kernels of the benchmark. Every kernel ends by itself: waiting is bounded.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace p2p {

// Result of a latency kernel, in host memory that the GPU can write.
struct LatencyResult {
    uint64_t elapsed_ns; // of the counted iterations; 0 after a timeout
    uint64_t iterations;
};

// Launches return the launch's error. Sizes are multiples of 16 bytes.
cudaError_t fill(void *to, size_t bytes, uint32_t seed, cudaStream_t stream);
// Sets *mismatch to 1 unless the data is that of fill() with this seed.
cudaError_t compare(const void *data, size_t bytes, uint32_t seed, uint32_t *mismatch,
                    cudaStream_t stream);
// Copies; either side may be a peer's memory.
cudaError_t copy(void *to, const void *from, size_t bytes, int blocks, cudaStream_t stream);
// Holds the stream until *gate reaches the ticket; sets *missed at the time limit.
cudaError_t hold(const uint32_t *gate, uint32_t ticket, uint64_t limit_ns, uint32_t *missed,
                 cudaStream_t stream);
// Repeats: stores a word to `flag` and waits for a system-wide fence.
cudaError_t write_and_fence(uint32_t *flag, uint32_t iterations, uint64_t limit_ns,
                            LatencyResult *result, cudaStream_t stream);
// Two GPUs exchange a counter; the GPU with `serves` starts and reports the time.
cudaError_t exchange_flags(uint32_t *own, uint32_t *peer, uint32_t iterations, bool serves,
                           uint64_t limit_ns, LatencyResult *result, cudaStream_t stream);
// Returns an error if this program has no code for the current GPU.
cudaError_t has_code();

} // namespace p2p
