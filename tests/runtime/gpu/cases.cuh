// What the checks of the executor on GPUs share: calls with their right results.
#ifndef TUCCL_TESTS_GPU_CASES_CUH
#define TUCCL_TESTS_GPU_CASES_CUH

#include "../native/expected.h"
#include "ranks.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <random>

namespace gpu {

using tuccl_tests::Sizes;

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
    const Sizes elements = tuccl_tests::elements_of(one.call, one.ranks);
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
    const Sizes elements = tuccl_tests::elements_of(one.call, one.ranks);
    std::vector<char> host(elements.receive * width + 2 * buffers.guard, static_cast<char>(kGuard));
    CHECK(cudaMemcpyAsync(buffers.receive - buffers.guard, host.data(), host.size(),
                          cudaMemcpyHostToDevice, stream));
    host.resize(elements.send * width);
    for (size_t element = 0; element < elements.send; element++)
        write(host.data(), element, one.call.type,
              tuccl_tests::value_at(one.call, one.ranks, rank, element));
    CHECK(cudaMemcpyAsync(buffers.send, host.data(), host.size(), cudaMemcpyHostToDevice, stream));
    CHECK(cudaStreamSynchronize(stream));
}

inline size_t wrong_bytes_of(const Case &one, uint32_t rank, const Buffers &buffers) {
    const size_t width = tuccl::type_bytes(one.call.type);
    const size_t elements = tuccl_tests::elements_of(one.call, one.ranks).receive;
    std::vector<char> wanted(elements * width + 2 * buffers.guard, static_cast<char>(kGuard));
    const bool empty = one.call.operation == TUCCL_REDUCE && rank != one.call.root;
    for (size_t element = 0; element < elements && !empty; element++)
        write(wanted.data() + buffers.guard, element, one.call.type,
              tuccl_tests::expected_at(one.call, one.ranks, rank, element));
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

inline size_t pick(std::mt19937_64 &random, size_t last) {
    return std::uniform_int_distribution<size_t>(0, last)(random);
}

// Draws a case's type, reduction, size and offsets.
inline void draw_data(std::mt19937_64 &random, const Options &options, Case *one) {
    static constexpr size_t kLargest[] = {1, 17, 1009, 40000, 300000, 2500000};
    one->call.type = static_cast<uint8_t>(pick(random, TUCCL_TYPES - 1));
    one->call.reduction = static_cast<uint8_t>(pick(random, TUCCL_REDUCTIONS - 1));
    const size_t width = tuccl::type_bytes(one->call.type);
    const size_t largest = std::min(kLargest[pick(random, 5)], options.largest);
    one->call.count = std::max<size_t>(1, (1 + pick(random, largest - 1)) / width);
    one->send_offset = pick(random, 1) != 0 ? 0 : width * pick(random, 16);
    one->receive_offset = pick(random, 1) != 0 ? 0 : width * pick(random, 16);
}

inline std::string describe_data(const Case &one) {
    char text[200];
    std::snprintf(text, sizeof text,
                  "%u ranks, type %u reduction %u protocol %u count %zu channels %u threads %u "
                  "offsets %zu %zu but not %x, times %u%s",
                  one.ranks, one.call.type, one.call.reduction, one.call.protocol, one.call.count,
                  one.call.nchannels, one.call.nthreads, one.send_offset, one.receive_offset,
                  one.without_offsets, one.times, one.in_place ? " in place" : "");
    return text;
}

// A case, the devices of its ranks, and what it is besides its data.
struct Drawn {
    Case one;
    std::vector<Device> *devices;
    std::string what;
    bool fits = true; // Ranks that share a GPU may have too many blocks together.
};

// Draws cases and runs those that can run, until the options' time is over. `before` is called
// with the number and the devices of each. Returns the exit code.
template <typename Draw, typename Before>
int run_cases(size_t cases, uint64_t seed, const Options &options, Draw draw, Before before) {
    std::mt19937_64 random(seed);
    Clock clock(options);
    size_t bad = 0;
    size_t done = 0;
    for (size_t number = 0; number < cases && clock.goes_on(number); number++) {
        const Drawn drawn = draw(random);
        const Case &one = drawn.one;
        const bool alone = options.rank != kAllRanks;
        if (alone && options.rank >= one.ranks)
            continue;
        const Device &any = (*drawn.devices)[alone ? options.rank : 0];
        if (!drawn.fits || !tuccl_device_supports(any.comm, &one.call))
            continue;
        done++;
        const std::string what = drawn.what + " of " + describe_data(one);
        if (alone)
            std::printf("case %zu: %s\n", number, what.c_str());
        before(number, *drawn.devices);
        if (const size_t wrong = wrong_bytes(one, *drawn.devices, options)) {
            bad++;
            std::printf("WRONG %zu bytes in case %zu: %s\n", wrong, number, what.c_str());
        }
    }
    std::printf("%zu cases on up to %u ranks, %zu wrong\n", done, options.ranks, bad);
    return bad != 0;
}

} // namespace gpu

#endif
