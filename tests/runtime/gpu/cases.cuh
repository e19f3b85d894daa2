// What the checks of the executor on GPUs share: calls with their right results.
#ifndef TUCCL_TESTS_GPU_CASES_CUH
#define TUCCL_TESTS_GPU_CASES_CUH

#include "ranks.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <random>

namespace gpu {

constexpr size_t kGuardBytes = 64;
constexpr unsigned char kGuard = 0xA5;

struct Case {
    tuccl_call call;
    uint32_t ranks;
    size_t send_offset;
    size_t receive_offset;
    uint32_t without_offsets; // A bit for each rank whose buffers begin at aligned addresses.
    bool in_place;
    uint32_t times; // Launches after one another; in place sums would be added up again.
};

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

// One rank's buffers of a case, and where in them it sends from and receives to.
struct Buffers {
    char *send_memory = nullptr;
    char *receive_memory = nullptr;
    char *send = nullptr;
    char *receive = nullptr;
    size_t guard = 0; // Bytes on either side of what is received.
};

// A guard tells what is written where it must not be. Without one memory ends with the data, and
// memcheck tells.
inline Buffers buffers_of(const Case &one, uint32_t rank, bool exact) {
    const size_t width = tuccl::type_bytes(one.call.type);
    const Sizes elements = elements_of(one);
    const bool plain = (one.without_offsets >> rank & 1) != 0;
    const size_t send_offset = plain ? 0 : one.send_offset;
    const size_t receive_offset = plain ? 0 : one.receive_offset;
    const size_t guard = exact ? 0 : kGuardBytes;
    const size_t larger = std::max(elements.send, elements.receive) * width;
    const bool rooted = one.call.operation == TUCCL_BROADCAST || one.call.operation == TUCCL_REDUCE;
    // Only the root has both buffers.
    const bool in_place = one.in_place && !(rooted && rank != one.call.root);
    const bool within_send = in_place && one.call.operation == TUCCL_REDUCE_SCATTER;
    const bool within_receive = in_place && !within_send;
    Buffers buffers;
    buffers.guard = within_send ? 0 : guard;
    if (!within_receive) {
        const size_t bytes = within_send ? larger : elements.send * width;
        CHECK(cudaMalloc(&buffers.send_memory, send_offset + bytes));
        buffers.send = buffers.send_memory + send_offset;
    }
    if (!within_send) {
        const size_t bytes = within_receive ? larger : elements.receive * width;
        CHECK(cudaMalloc(&buffers.receive_memory, receive_offset + bytes + 2 * guard));
        buffers.receive = buffers.receive_memory + receive_offset + guard;
    }
    const size_t own = rank * one.call.count * width;
    if (within_send)
        buffers.receive = buffers.send + own;
    else if (within_receive)
        buffers.send = buffers.receive + (one.call.operation == TUCCL_ALL_GATHER ? own : 0);
    return buffers;
}

// On the stream of the call: a copy from pageable memory returns before it has arrived, and another
// stream does not wait for it.
inline void fill(const Case &one, uint32_t rank, const Buffers &buffers, cudaStream_t stream) {
    const size_t width = tuccl::type_bytes(one.call.type);
    const Sizes elements = elements_of(one);
    std::vector<char> host(elements.receive * width + 2 * buffers.guard, static_cast<char>(kGuard));
    CHECK(cudaMemcpyAsync(buffers.receive - buffers.guard, host.data(), host.size(),
                          cudaMemcpyHostToDevice, stream));
    host.resize(elements.send * width);
    for (size_t element = 0; element < elements.send; element++)
        write(host.data(), element, one.call.type, value_at(rank, element, one.call, one.ranks));
    CHECK(cudaMemcpyAsync(buffers.send, host.data(), host.size(), cudaMemcpyHostToDevice, stream));
    CHECK(cudaStreamSynchronize(stream));
}

inline size_t wrong_bytes_of(const Case &one, uint32_t rank, const Buffers &buffers) {
    const size_t width = tuccl::type_bytes(one.call.type);
    const size_t elements = elements_of(one).receive;
    std::vector<char> wanted(elements * width + 2 * buffers.guard, static_cast<char>(kGuard));
    const bool empty = one.call.operation == TUCCL_REDUCE && rank != one.call.root;
    for (size_t element = 0; element < elements && !empty; element++)
        write(wanted.data() + buffers.guard, element, one.call.type,
              expected_at(one, rank, element));
    std::vector<char> found(wanted.size());
    CHECK(cudaMemcpy(found.data(), buffers.receive - buffers.guard, found.size(),
                     cudaMemcpyDeviceToHost));
    size_t wrong = 0;
    for (size_t i = 0; i < wanted.size(); i++)
        wrong += found[i] != wanted[i];
    return wrong;
}

// Runs a case and compares; how many bytes are wrong on the ranks of this process.
inline size_t wrong_bytes(const Case &one, std::vector<Device> &devices, const Options &options) {
    std::vector<Buffers> buffers(one.ranks);
    const auto each = [&](auto act) {
        for (uint32_t rank = 0; rank < one.ranks; rank++)
            if (options.owns(rank)) {
                use_device_of(rank);
                act(rank);
            }
    };
    each([&](uint32_t rank) {
        buffers[rank] = buffers_of(one, rank, options.exact);
        fill(one, rank, buffers[rank], devices[rank].stream);
    });
    for (uint32_t time = 0; time < std::max(1U, one.times); time++) {
        each([&](uint32_t rank) {
            tuccl_call call = one.call;
            call.send = buffers[rank].send;
            call.receive = buffers[rank].receive;
            CHECK(static_cast<cudaError_t>(
                tuccl_device_launch(devices[rank].comm, &call, devices[rank].stream)));
        });
    }
    each([&](uint32_t rank) { CHECK(cudaStreamSynchronize(devices[rank].stream)); });
    size_t wrong = 0;
    each([&](uint32_t rank) {
        wrong += wrong_bytes_of(one, rank, buffers[rank]);
        CHECK(cudaFree(buffers[rank].send_memory));
        CHECK(cudaFree(buffers[rank].receive_memory));
    });
    return wrong;
}

} // namespace gpu

#endif
