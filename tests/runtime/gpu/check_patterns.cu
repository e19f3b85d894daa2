// Runs the executor's patterns on the GPUs of this host, all in one process, and compares every
// byte with what it must be: random types, reductions, counts, alignments, in place and out of
// place, protocols, blocks, threads and numbers of ranks; also across the wrap of LL's flags. Then
// times of graphs of 20 calls. Exit code 0: all right.
//
//   check_patterns [cases] [seed] [--no-times]
#include "../../../tuccl/runtime/executor/device_comm.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <random>
#include <string>
#include <vector>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess) {                                                               \
            std::printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error_));            \
            std::exit(2);                                                                          \
        }                                                                                          \
    } while (0)

namespace {

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
};

std::vector<Device> devices_of(uint32_t ranks) {
    std::vector<Device> devices(ranks);
    unsigned char handles[TUCCL_MAX_RANKS][TUCCL_HANDLE_BYTES];
    for (uint32_t rank = 0; rank < ranks; rank++) {
        CHECK(cudaSetDevice(static_cast<int>(rank)));
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
        CHECK(cudaSetDevice(static_cast<int>(rank)));
        if (const char *reason = tuccl_device_comm_connect(devices[rank].comm, handles)) {
            std::printf("connect: %s\n", reason);
            std::exit(2);
        }
    }
    return devices;
}

void release(std::vector<Device> &devices) {
    for (uint32_t rank = 0; rank < devices.size(); rank++) {
        CHECK(cudaSetDevice(static_cast<int>(rank)));
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
int value_at(uint32_t rank, size_t element, const tuccl_call &call, uint32_t ranks) {
    const uint32_t mixed = static_cast<uint32_t>(element * 2654435761U + rank * 40503U) >> 13;
    if (call.reduction == TUCCL_PROD)
        return static_cast<int>(mixed % 3);
    if (call.reduction == TUCCL_AVG)
        return static_cast<int>(mixed % 4 * ranks);
    return static_cast<int>(mixed % 13);
}

int reduced_at(size_t element, const tuccl_call &call, uint32_t ranks) {
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

void write(char *to, size_t element, uint32_t type, int value) {
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

Sizes elements_of(const Case &one) {
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
int expected_at(const Case &one, uint32_t rank, size_t element) {
    const size_t count = one.call.count;
    switch (one.call.operation) {
    case TUCCL_ALL_GATHER:
        return value_at(static_cast<uint32_t>(element / count), element % count, one.call,
                        one.ranks);
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
size_t wrong_bytes(const Case &one, std::vector<Device> &devices) {
    const size_t width = tuccl::type_bytes(one.call.type);
    const Sizes elements = elements_of(one);
    std::vector<tuccl_call> calls(one.ranks, one.call);
    std::vector<char> host;
    for (uint32_t rank = 0; rank < one.ranks; rank++) {
        CHECK(cudaSetDevice(static_cast<int>(rank)));
        Device &device = devices[rank];
        char *receive = device.receive + kGuardBytes + one.receive_offset;
        char *send = device.send + kGuardBytes + one.send_offset;
        if (one.in_place && one.call.operation == TUCCL_ALL_GATHER)
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
        CHECK(cudaSetDevice(static_cast<int>(rank)));
        CHECK(static_cast<cudaError_t>(
            tuccl_device_launch(devices[rank].comm, &calls[rank], devices[rank].stream)));
    }
    size_t wrong = 0;
    for (uint32_t rank = 0; rank < one.ranks; rank++) {
        CHECK(cudaSetDevice(static_cast<int>(rank)));
        CHECK(cudaStreamSynchronize(devices[rank].stream));
        const bool bare = one.in_place && one.call.operation == TUCCL_REDUCE_SCATTER;
        const size_t guard = bare ? 0 : kGuardBytes;
        std::vector<char> wanted(elements.receive * width + 2 * guard, static_cast<char>(kGuard));
        for (size_t element = 0; element < elements.receive; element++)
            write(wanted.data() + guard, element, one.call.type, expected_at(one, rank, element));
        host.resize(wanted.size());
        CHECK(cudaMemcpy(host.data(), static_cast<char *>(calls[rank].receive) - guard, host.size(),
                         cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < wanted.size(); i++)
            wrong += host[i] != wanted[i];
    }
    return wrong;
}

template <typename Of> size_t pick(std::mt19937_64 &random, Of last) {
    return std::uniform_int_distribution<size_t>(0, static_cast<size_t>(last))(random);
}

Case random_case(std::mt19937_64 &random, uint32_t most_ranks) {
    static constexpr uint8_t kOperations[] = {TUCCL_ALL_REDUCE, TUCCL_ALL_REDUCE, TUCCL_ALL_GATHER,
                                              TUCCL_REDUCE_SCATTER, TUCCL_ALLTOALL};
    static constexpr size_t kLargest[] = {1, 17, 1009, 40000, 300000, 2500000};
    Case one = {};
    one.ranks = static_cast<uint32_t>(2 + pick(random, most_ranks - 2));
    one.call.operation = kOperations[pick(random, 4)];
    one.call.type = static_cast<uint8_t>(pick(random, TUCCL_TYPES - 1));
    one.call.reduction = static_cast<uint8_t>(pick(random, TUCCL_REDUCTIONS - 1));
    one.call.pattern = one.call.operation != TUCCL_ALL_REDUCE ? TUCCL_PATTERN_DIRECT
                       : pick(random, 1) != 0                 ? TUCCL_PATTERN_ONE_PHASE
                                                              : TUCCL_PATTERN_TWO_PHASE;
    one.call.protocol = static_cast<uint8_t>(pick(random, 1));
    one.call.nchannels = static_cast<uint16_t>(1 + pick(random, 39));
    one.call.nthreads = static_cast<uint16_t>(32 * (1 + pick(random, 31)));
    const size_t width = tuccl::type_bytes(one.call.type);
    const size_t bytes = 1 + pick(random, kLargest[pick(random, 5)] - 1);
    one.call.count = std::max<size_t>(1, bytes / width);
    one.send_offset = pick(random, 1) != 0 ? 0 : width * pick(random, 16);
    one.receive_offset = pick(random, 1) != 0 ? 0 : width * pick(random, 16);
    one.in_place = one.call.operation != TUCCL_ALLTOALL && pick(random, 2) == 0;
    return one;
}

std::string describe(const Case &one) {
    char text[200];
    std::snprintf(text, sizeof text,
                  "operation %u type %u reduction %u pattern %u protocol %u count %zu ranks %u "
                  "blocks %u threads %u offsets %zu %zu%s",
                  one.call.operation, one.call.type, one.call.reduction, one.call.pattern,
                  one.call.protocol, one.call.count, one.ranks, one.call.nchannels,
                  one.call.nthreads, one.send_offset, one.receive_offset,
                  one.in_place ? " in place" : "");
    return text;
}

// Shortly before LL's flags begin anew, or are halfway.
void set_epoch(std::vector<Device> &devices, uint64_t epoch) {
    for (uint32_t rank = 0; rank < devices.size(); rank++) {
        CHECK(cudaSetDevice(static_cast<int>(rank)));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(devices[rank].comm->peers.counters, &epoch, sizeof epoch,
                         cudaMemcpyHostToDevice));
    }
}

int run_cases(size_t cases, uint64_t seed, uint32_t most_ranks) {
    std::mt19937_64 random(seed);
    std::vector<std::vector<Device>> groups(most_ranks + 1);
    for (uint32_t ranks = 2; ranks <= most_ranks; ranks++)
        groups[ranks] = devices_of(ranks);
    size_t bad = 0;
    for (size_t number = 0; number < cases; number++) {
        const Case one = random_case(random, most_ranks);
        std::vector<Device> &devices = groups[one.ranks];
        if (!tuccl_device_supports(devices[0].comm, &one.call))
            continue;
        if (number % 500 == 250)
            set_epoch(devices, ((number / 500 + 1) << 32) +
                                   (number % 1000 == 250 ? 0xFFFFFFFFULL : 0x7FFFFFFFULL) - 7);
        if (const size_t wrong = wrong_bytes(one, devices)) {
            bad++;
            std::printf("WRONG %zu bytes in case %zu: %s\n", wrong, number, describe(one).c_str());
        }
    }
    for (uint32_t ranks = 2; ranks <= most_ranks; ranks++)
        release(groups[ranks]);
    std::printf("%zu cases on up to %u GPUs, %zu wrong\n", cases, most_ranks, bad);
    return bad != 0;
}

float time_us(std::vector<Device> &devices, const tuccl_call &call, int calls) {
    const size_t ranks = devices.size();
    std::vector<cudaGraphExec_t> graphs(ranks);
    std::vector<cudaEvent_t> before(ranks);
    std::vector<cudaEvent_t> after(ranks);
    for (size_t rank = 0; rank < ranks; rank++) {
        CHECK(cudaSetDevice(static_cast<int>(rank)));
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
            CHECK(cudaSetDevice(static_cast<int>(rank)));
            CHECK(cudaGraphLaunch(graphs[rank], devices[rank].stream));
        }
        for (size_t rank = 0; rank < ranks; rank++) {
            CHECK(cudaSetDevice(static_cast<int>(rank)));
            CHECK(cudaEventRecord(before[rank], devices[rank].stream));
            CHECK(cudaGraphLaunch(graphs[rank], devices[rank].stream));
            CHECK(cudaEventRecord(after[rank], devices[rank].stream));
        }
        float slowest = 0;
        for (size_t rank = 0; rank < ranks; rank++) {
            CHECK(cudaSetDevice(static_cast<int>(rank)));
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

void print_times(uint32_t ranks) {
    std::vector<Device> devices = devices_of(ranks);
    const struct {
        const char *name;
        uint8_t operation;
        uint8_t pattern;
        uint8_t protocol;
        size_t largest;
    } kinds[] = {
        {"all_reduce one LL", TUCCL_ALL_REDUCE, TUCCL_PATTERN_ONE_PHASE, TUCCL_LL, 1 << 18},
        {"all_reduce one LL128", TUCCL_ALL_REDUCE, TUCCL_PATTERN_ONE_PHASE, TUCCL_LL128, 1 << 18},
        {"all_reduce two LL", TUCCL_ALL_REDUCE, TUCCL_PATTERN_TWO_PHASE, TUCCL_LL, 1 << 22},
        {"all_reduce two LL128", TUCCL_ALL_REDUCE, TUCCL_PATTERN_TWO_PHASE, TUCCL_LL128, 1 << 25},
        {"all_gather LL", TUCCL_ALL_GATHER, TUCCL_PATTERN_DIRECT, TUCCL_LL, 1 << 20},
        {"all_gather LL128", TUCCL_ALL_GATHER, TUCCL_PATTERN_DIRECT, TUCCL_LL128, 1 << 25},
        {"reduce_scatter LL", TUCCL_REDUCE_SCATTER, TUCCL_PATTERN_DIRECT, TUCCL_LL, 1 << 20},
        {"reduce_scatter LL128", TUCCL_REDUCE_SCATTER, TUCCL_PATTERN_DIRECT, TUCCL_LL128, 1 << 25},
        {"alltoall LL128", TUCCL_ALLTOALL, TUCCL_PATTERN_DIRECT, TUCCL_LL128, 1 << 25},
    };
    for (const auto &kind : kinds) {
        for (size_t bytes = 1024; bytes <= kind.largest; bytes *= 4) {
            float best = 1e9F;
            unsigned best_blocks = 0;
            unsigned best_threads = 0;
            for (unsigned blocks : {1U, 4U, 8U, 16U, 32U, 64U})
                for (unsigned threads : {128U, 256U, 512U, 1024U}) {
                    const bool blocked = kind.operation != TUCCL_ALL_REDUCE;
                    tuccl_call call = {};
                    call.count = bytes / 2 / (blocked ? ranks : 1);
                    call.operation = kind.operation;
                    call.type = TUCCL_FLOAT16;
                    call.pattern = kind.pattern;
                    call.protocol = kind.protocol;
                    call.nchannels = static_cast<uint16_t>(blocks);
                    call.nthreads = static_cast<uint16_t>(threads);
                    if (!tuccl_device_supports(devices[0].comm, &call))
                        continue;
                    const float us = time_us(devices, call, 20);
                    if (us < best) {
                        best = us;
                        best_blocks = blocks;
                        best_threads = threads;
                    }
                }
            std::printf("%-22s %9zu bytes %9.2f us, %u blocks of %u\n", kind.name, bytes, best,
                        best_blocks, best_threads);
        }
    }
    release(devices);
}

} // namespace

int main(int argc, char **argv) {
    const size_t cases = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2000;
    const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    if (count < 2) {
        std::printf("needs two GPUs, sees %d\n", count);
        return 2;
    }
    const uint32_t ranks = static_cast<uint32_t>(std::min(count, 8));
    const int result = run_cases(cases, seed, ranks);
    if (argc <= 3)
        print_times(ranks);
    return result;
}
