// What runs on the GPUs. Every kernel ends by itself: those that wait do so for a bounded time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace p2p {

// What a latency kernel reports, in host memory that the GPU can write.
struct LatencyResult {
    uint64_t elapsed_ns; // of the counted iterations; 0: gave up waiting
    uint64_t iterations;
};

// Launches return the launch's error. Sizes are multiples of 16 bytes.
cudaError_t fill(void *to, size_t bytes, uint32_t seed, cudaStream_t stream);
// Sets *mismatch to 1 unless the data is what fill() wrote with this seed.
cudaError_t compare(const void *data, size_t bytes, uint32_t seed, uint32_t *mismatch,
                    cudaStream_t stream);
// Either side may be another GPU's memory.
cudaError_t copy(void *to, const void *from, size_t bytes, int blocks, cudaStream_t stream);
// Holds the stream until *gate has reached the ticket; sets *missed when that takes too long.
cudaError_t hold(const uint32_t *gate, uint32_t ticket, uint64_t limit_ns, uint32_t *missed,
                 cudaStream_t stream);
// Stores a word to `flag` and waits for a system-wide fence, one after the other.
cudaError_t write_and_fence(uint32_t *flag, uint32_t iterations, uint64_t limit_ns,
                            LatencyResult *result, cudaStream_t stream);
// Two GPUs hand a counter to and fro: the one that serves first reports the time.
cudaError_t exchange_flags(uint32_t *own, uint32_t *peer, uint32_t iterations, bool serves,
                           uint64_t limit_ns, LatencyResult *result, cudaStream_t stream);
// Whether this program holds code for the current GPU.
cudaError_t has_code();

} // namespace p2p
