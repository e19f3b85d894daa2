// Times of calls in CUDA graphs, all ranks in one process.
#ifndef TUCCL_TESTS_GPU_TIMES_CUH
#define TUCCL_TESTS_GPU_TIMES_CUH

#include "ranks.cuh"

namespace gpu {

// Buffers that every timed call fits in.
struct Room {
    static constexpr size_t kBytes = size_t{80} << 20;
    std::vector<char *> send;
    std::vector<char *> receive;

    explicit Room(size_t ranks) : send(ranks), receive(ranks) {
        for (uint32_t rank = 0; rank < ranks; rank++) {
            use_device_of(rank);
            CHECK(cudaMalloc(&send[rank], kBytes));
            CHECK(cudaMalloc(&receive[rank], kBytes));
        }
    }
    ~Room() {
        for (char *memory : send)
            (void)cudaFree(memory);
        for (char *memory : receive)
            (void)cudaFree(memory);
    }
    Room(const Room &) = delete;
    Room &operator=(const Room &) = delete;
};

// Microseconds of one of `calls` calls in a graph, on the slowest rank; median of five. `put` puts
// one on the stream of a rank whose device is the current one.
template <typename Put> float time_us(const std::vector<Device> &devices, int calls, Put put) {
    const size_t ranks = devices.size();
    std::vector<cudaGraphExec_t> graphs(ranks);
    std::vector<cudaEvent_t> before(ranks);
    std::vector<cudaEvent_t> after(ranks);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        use_device_of(rank);
        cudaGraph_t graph;
        CHECK(cudaStreamBeginCapture(devices[rank].stream, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < calls; i++)
            put(rank);
        CHECK(cudaStreamEndCapture(devices[rank].stream, &graph));
        CHECK(cudaGraphInstantiate(&graphs[rank], graph, 0));
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaEventCreate(&before[rank]));
        CHECK(cudaEventCreate(&after[rank]));
    }
    std::vector<float> times;
    for (int repeat = 0; repeat < 5; repeat++) {
        for (uint32_t rank = 0; rank < ranks; rank++) {
            use_device_of(rank);
            CHECK(cudaGraphLaunch(graphs[rank], devices[rank].stream));
        }
        for (uint32_t rank = 0; rank < ranks; rank++) {
            use_device_of(rank);
            CHECK(cudaEventRecord(before[rank], devices[rank].stream));
            CHECK(cudaGraphLaunch(graphs[rank], devices[rank].stream));
            CHECK(cudaEventRecord(after[rank], devices[rank].stream));
        }
        float slowest = 0;
        for (uint32_t rank = 0; rank < ranks; rank++) {
            use_device_of(rank);
            CHECK(cudaStreamSynchronize(devices[rank].stream));
            float milliseconds = 0;
            CHECK(cudaEventElapsedTime(&milliseconds, before[rank], after[rank]));
            slowest = std::max(slowest, milliseconds * 1000 / static_cast<float>(calls));
        }
        times.push_back(slowest);
    }
    for (size_t rank = 0; rank < ranks; rank++) {
        CHECK(cudaGraphExecDestroy(graphs[rank]));
        CHECK(cudaEventDestroy(before[rank]));
        CHECK(cudaEventDestroy(after[rank]));
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

inline float time_us(const std::vector<Device> &devices, const Room &room, tuccl_call call,
                     int calls) {
    return time_us(devices, calls, [&](uint32_t rank) {
        call.send = room.send[rank];
        call.receive = room.receive[rank];
        CHECK(static_cast<cudaError_t>(
            tuccl_device_launch(devices[rank].comm, &call, devices[rank].stream)));
    });
}

} // namespace gpu

#endif
