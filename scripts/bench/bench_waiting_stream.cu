// What a stream that waits costs short kernels of another one, by how many streams were used
// before.
//
//   nvcc -O2 -std=c++17 -arch=native scripts/bench/bench_waiting_stream.cu -o /tmp/bench &&
//   /tmp/bench
//
// One stream computes; 14 times, after 30 kernels each, another one waits for an event of it and
// runs a call as NCCL orders it: behind NCCL's own stream. Between the first uses of these three
// streams others are used once. It prints the computing stream's time for a kernel, in us.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kCalls = 14;
constexpr int kKernels = 30; // Before each call.
constexpr int kRounds = 9;
constexpr int kMostOthers = 4;
constexpr long long kAhead = 20'000'000; // Cycles in which the host launches a round.
constexpr long long kCallCycles = 20'000;
constexpr int kFloats = 1 << 18;

void check(cudaError_t error) {
    if (error == cudaSuccess)
        return;
    std::fprintf(stderr, "bench_waiting_stream: %s\n", cudaGetErrorString(error));
    std::exit(1);
}

__global__ void spin(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {
    }
}

__global__ void touch(float *values) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < kFloats; i += gridDim.x * blockDim.x)
        values[i] += 1.0f;
}

cudaStream_t used_stream() {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    spin<<<1, 1, 0, stream>>>(1000);
    check(cudaDeviceSynchronize());
    return stream;
}

cudaEvent_t event(unsigned flags) {
    cudaEvent_t made = nullptr;
    check(cudaEventCreateWithFlags(&made, flags));
    return made;
}

struct Streams {
    cudaStream_t computing;
    cudaStream_t nccls;
    cudaStream_t calling;
};

void follow(cudaStream_t stream, cudaStream_t before, cudaEvent_t by) {
    check(cudaEventRecord(by, before));
    check(cudaStreamWaitEvent(stream, by, 0));
}

double kernel_us(const Streams &streams, float *values) {
    const cudaEvent_t begin = event(cudaEventDefault);
    const cudaEvent_t end = event(cudaEventDefault);
    const cudaEvent_t by = event(cudaEventDisableTiming);
    std::vector<double> found;
    for (int round = 0; round < kRounds; round++) {
        spin<<<1, 1, 0, streams.computing>>>(kAhead);
        check(cudaEventRecord(begin, streams.computing));
        for (int call = 0; call < kCalls; call++) {
            for (int i = 0; i < kKernels; i++)
                touch<<<132, 256, 0, streams.computing>>>(values);
            follow(streams.calling, streams.computing, by);
            follow(streams.calling, streams.nccls, by);
            spin<<<1, 32, 0, streams.calling>>>(kCallCycles);
            follow(streams.nccls, streams.calling, by);
        }
        check(cudaEventRecord(end, streams.computing));
        check(cudaDeviceSynchronize());
        float ms = 0;
        check(cudaEventElapsedTime(&ms, begin, end));
        found.push_back(1e3 * ms / (kCalls * kKernels));
    }
    std::sort(found.begin(), found.end());
    return found[kRounds / 2];
}

} // namespace

// Streams get their channels in a process's order, so each row needs one of its own.
int main(int argc, char **argv) {
    if (argc != 3) {
        for (int before = 0; before <= kMostOthers; before++)
            for (int between = 0; between < kMostOthers; between++) {
                char command[4096];
                std::snprintf(command, sizeof command, "'%s' %d %d", argv[0], before, between);
                if (std::system(command) != 0)
                    return 1;
            }
        return 0;
    }
    const int before = std::atoi(argv[1]);
    const int between = std::atoi(argv[2]);
    float *values = nullptr;
    check(cudaMalloc(&values, kFloats * sizeof *values));
    Streams streams = {used_stream(), nullptr, nullptr};
    for (int i = 0; i < before; i++)
        used_stream();
    streams.nccls = used_stream();
    for (int i = 0; i < between; i++)
        used_stream();
    streams.calling = used_stream();
    std::printf("%d others before NCCL's stream, %d before the calling one: %.2f us\n", before,
                between, kernel_us(streams, values));
    return 0;
}
