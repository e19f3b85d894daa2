// What the checks of the executor on GPUs share: ranks on the GPUs of this host, all in one
// process, calls with their right results, and times of graphs.
#ifndef TUCCL_TESTS_GPU_CASES_CUH
#define TUCCL_TESTS_GPU_CASES_CUH

#include "../../../tuccl/runtime/executor/device_comm.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <random>
#include <vector>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess) {                                                               \
            std::printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error_));            \
            std::exit(2);                                                                          \
        }                                                                                          \
    } while (0)

namespace gpu {

constexpr size_t kRoomBytes = size_t{80} << 20;
constexpr size_t kGuardBytes = 64;
constexpr unsigned char kGuard = 0xA5;

struct Device {
    tuccl_device_comm *comm = nullptr;
    char *send = nullptr;
    char *receive = nullptr;
    cudaStream_t stream = nullptr;
};

struct Case {
    tuccl_call call;
    uint32_t ranks;
    size_t send_offset;
    size_t receive_offset;
    bool in_place;
    uint32_t times; // Launches after one another; in place sums would be added up again.
};

// Ranks beyond the host's GPUs share them.
inline void use_device_of(uint32_t rank) {
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    CHECK(cudaSetDevice(static_cast<int>(rank) % count));
}

inline std::vector<Device> devices_of(uint32_t ranks) {
    std::vector<Device> devices(ranks);
    unsigned char handles[TUCCL_MAX_RANKS][TUCCL_HANDLE_BYTES];
    for (uint32_t rank = 0; rank < ranks; rank++) {
        use_device_of(rank);
        CHECK(cudaMalloc(&devices[rank].send, kRoomBytes));
        CHECK(cudaMalloc(&devices[rank].receive, kRoomBytes));
        CHECK(cudaStreamCreateWithFlags(&devices[rank].stream, cudaStreamNonBlocking));
        if (const char *reason =
                tuccl_device_comm_create(&devices[rank].comm, rank, ranks, handles[rank])) {
            std::printf("create: %s\n", reason);
            std::exit(2);
        }
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        use_device_of(rank);
        if (const char *reason = tuccl_device_comm_connect(devices[rank].comm, handles)) {
            std::printf("connect: %s\n", reason);
            std::exit(2);
        }
    }
    return devices;
}

inline void release(std::vector<Device> &devices) {
    for (uint32_t rank = 0; rank < devices.size(); rank++) {
        use_device_of(rank);
        CHECK(cudaStreamSynchronize(devices[rank].stream));
    }
    for (Device &device : devices) {
        tuccl_device_comm_destroy(device.comm);
        CHECK(cudaFree(device.send));
        CHECK(cudaFree(device.receive));
        CHECK(cudaStreamDestroy(device.stream));
    }
}

// Small whole numbers, so that every type holds every result exactly.
inline int value_at(uint32_t rank, size_t element, const tuccl_call &call, uint32_t ranks) {
    const uint32_t mixed = static_cast<uint32_t>(element * 2654435761U + rank * 40503U) >> 13;
    if (call.reduction == TUCCL_PROD)
        return static_cast<int>(mixed % 3);
    if (call.reduction == TUCCL_AVG)
        return static_cast<int>(mixed % 4 * ranks);
    return static_cast<int>(mixed % 13);
}

inline int reduced_at(size_t element, const tuccl_call &call, uint32_t ranks) {
    int result = value_at(0, element, call, ranks);
    for (uint32_t rank = 1; rank < ranks; rank++) {
        const int value = value_at(rank, element, call, ranks);
        switch (call.reduction) {
        case TUCCL_PROD:
            result *= value;
            break;
        case TUCCL_MAX:
            result = std::max(result, value);
            break;
        case TUCCL_MIN:
            result = std::min(result, value);
            break;
        default:
            result += value;
        }
    }
    return call.reduction == TUCCL_AVG ? result / static_cast<int>(ranks) : result;
}

template <typename T> void put(char *to, size_t element, T value) {
    std::memcpy(to + element * sizeof(T), &value, sizeof(T));
}

inline void write(char *to, size_t element, uint32_t type, int value) {
    switch (type) {
    case TUCCL_INT8:
    case TUCCL_UINT8:
        return put(to, element, static_cast<int8_t>(value));
    case TUCCL_INT32:
    case TUCCL_UINT32:
        return put(to, element, value);
    case TUCCL_INT64:
    case TUCCL_UINT64:
        return put(to, element, static_cast<int64_t>(value));
    case TUCCL_FLOAT16:
        return put(to, element, __float2half(static_cast<float>(value)));
    case TUCCL_FLOAT32:
        return put(to, element, static_cast<float>(value));
    case TUCCL_FLOAT64:
        return put(to, element, static_cast<double>(value));
    default:
        return put(to, element, __float2bfloat16(static_cast<float>(value)));
    }
}

struct Sizes {
    size_t send;
    size_t receive;
};

inline Sizes elements_of(const Case &one) {
    const size_t count = one.call.count;
    switch (one.call.operation) {
    case TUCCL_ALL_GATHER:
        return {count, count * one.ranks};
    case TUCCL_REDUCE_SCATTER:
        return {count * one.ranks, count};
    case TUCCL_ALLTOALL:
        return {count * one.ranks, count * one.ranks};
    default:
        return {count, count};
    }
}

// What `rank` must end with at an element of its result.
inline int expected_at(const Case &one, uint32_t rank, size_t element) {
    const size_t count = one.call.count;
    switch (one.call.operation) {
    case TUCCL_ALL_GATHER:
        return value_at(static_cast<uint32_t>(element / count), element % count, one.call,
                        one.ranks);
    case TUCCL_BROADCAST:
        return value_at(one.call.root, element, one.call, one.ranks);
    case TUCCL_REDUCE_SCATTER:
        return reduced_at(rank * count + element, one.call, one.ranks);
    case TUCCL_ALLTOALL:
        return value_at(static_cast<uint32_t>(element / count), rank * count + element % count,
                        one.call, one.ranks);
    default:
        return reduced_at(element, one.call, one.ranks);
    }
}

// Runs a case and compares; how many bytes are wrong.
inline size_t wrong_bytes(const Case &one, std::vector<Device> &devices) {
    const size_t width = tuccl::type_bytes(one.call.type);
    const Sizes elements = elements_of(one);
    std::vector<tuccl_call> calls(one.ranks, one.call);
    std::vector<char> host;
    for (uint32_t rank = 0; rank < one.ranks; rank++) {
        use_device_of(rank);
        Device &device = devices[rank];
        char *receive = device.receive + kGuardBytes + one.receive_offset;
        char *send = device.send + kGuardBytes + one.send_offset;
        const bool rooted =
            one.call.operation == TUCCL_BROADCAST || one.call.operation == TUCCL_REDUCE;
        if (rooted && rank != one.call.root) {
            // Only the root has both buffers.
        } else if (one.in_place && one.call.operation == TUCCL_ALL_GATHER)
            send = receive + rank * one.call.count * width;
        else if (one.in_place && one.call.operation == TUCCL_REDUCE_SCATTER)
            receive = send + rank * one.call.count * width;
        else if (one.in_place)
            send = receive;
        host.assign(elements.receive * width + 2 * kGuardBytes, static_cast<char>(kGuard));
        CHECK(cudaMemcpy(receive - kGuardBytes, host.data(), host.size(), cudaMemcpyHostToDevice));
        host.resize(elements.send * width);
        for (size_t element = 0; element < elements.send; element++)
            write(host.data(), element, one.call.type,
                  value_at(rank, element, one.call, one.ranks));
        CHECK(cudaMemcpy(send, host.data(), host.size(), cudaMemcpyHostToDevice));
        calls[rank].send = send;
        calls[rank].receive = receive;
    }
    for (uint32_t rank = 0; rank < one.ranks; rank++) {
        use_device_of(rank);
        for (uint32_t i = 0; i < std::max(1U, one.times); i++)
            CHECK(static_cast<cudaError_t>(
                tuccl_device_launch(devices[rank].comm, &calls[rank], devices[rank].stream)));
    }
    size_t wrong = 0;
    for (uint32_t rank = 0; rank < one.ranks; rank++) {
        use_device_of(rank);
        CHECK(cudaStreamSynchronize(devices[rank].stream));
        const bool bare = one.in_place && one.call.operation == TUCCL_REDUCE_SCATTER;
        const size_t guard = bare ? 0 : kGuardBytes;
        std::vector<char> wanted(elements.receive * width + 2 * guard, static_cast<char>(kGuard));
        const bool empty = one.call.operation == TUCCL_REDUCE && rank != one.call.root;
        for (size_t element = 0; element < elements.receive && !empty; element++)
            write(wanted.data() + guard, element, one.call.type, expected_at(one, rank, element));
        host.resize(wanted.size());
        CHECK(cudaMemcpy(host.data(), static_cast<char *>(calls[rank].receive) - guard, host.size(),
                         cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < wanted.size(); i++)
            wrong += host[i] != wanted[i];
    }
    return wrong;
}
inline float time_us(std::vector<Device> &devices, const tuccl_call &call, int calls) {
    const size_t ranks = devices.size();
    std::vector<cudaGraphExec_t> graphs(ranks);
    std::vector<cudaEvent_t> before(ranks);
    std::vector<cudaEvent_t> after(ranks);
    for (size_t rank = 0; rank < ranks; rank++) {
        use_device_of(rank);
        tuccl_call own = call;
        own.send = devices[rank].send;
        own.receive = devices[rank].receive;
        cudaGraph_t graph;
        CHECK(cudaStreamBeginCapture(devices[rank].stream, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < calls; i++)
            CHECK(static_cast<cudaError_t>(
                tuccl_device_launch(devices[rank].comm, &own, devices[rank].stream)));
        CHECK(cudaStreamEndCapture(devices[rank].stream, &graph));
        CHECK(cudaGraphInstantiate(&graphs[rank], graph, 0));
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaEventCreate(&before[rank]));
        CHECK(cudaEventCreate(&after[rank]));
    }
    std::vector<float> times;
    for (int repeat = 0; repeat < 5; repeat++) {
        for (size_t rank = 0; rank < ranks; rank++) {
            use_device_of(rank);
            CHECK(cudaGraphLaunch(graphs[rank], devices[rank].stream));
        }
        for (size_t rank = 0; rank < ranks; rank++) {
            use_device_of(rank);
            CHECK(cudaEventRecord(before[rank], devices[rank].stream));
            CHECK(cudaGraphLaunch(graphs[rank], devices[rank].stream));
            CHECK(cudaEventRecord(after[rank], devices[rank].stream));
        }
        float slowest = 0;
        for (size_t rank = 0; rank < ranks; rank++) {
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

} // namespace gpu

#endif
