// Runs the executor's patterns on the GPUs of this host, all in one process, and compares every
// byte with what it must be: random types, reductions, counts, alignments, in place and out of
// place, protocols, blocks, threads and numbers of ranks; also across the wrap of LL's flags. Then
// times of graphs of 20 calls. Exit code 0: all right.
//
//   check_patterns [cases] [seed] [--no-times]
#include "cases.cuh"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

using gpu::Case;
using gpu::Device;

namespace {

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
        groups[ranks] = gpu::devices_of(ranks);
    size_t bad = 0;
    for (size_t number = 0; number < cases; number++) {
        const Case one = random_case(random, most_ranks);
        std::vector<Device> &devices = groups[one.ranks];
        if (!tuccl_device_supports(devices[0].comm, &one.call))
            continue;
        if (number % 500 == 250)
            set_epoch(devices, ((number / 500 + 1) << 32) +
                                   (number % 1000 == 250 ? 0xFFFFFFFFULL : 0x7FFFFFFFULL) - 7);
        if (const size_t wrong = gpu::wrong_bytes(one, devices)) {
            bad++;
            std::printf("WRONG %zu bytes in case %zu: %s\n", wrong, number, describe(one).c_str());
        }
    }
    for (uint32_t ranks = 2; ranks <= most_ranks; ranks++)
        gpu::release(groups[ranks]);
    std::printf("%zu cases on up to %u GPUs, %zu wrong\n", cases, most_ranks, bad);
    return bad != 0;
}

void print_times(uint32_t ranks) {
    std::vector<Device> devices = gpu::devices_of(ranks);
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
                    const float us = gpu::time_us(devices, call, 20);
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
    gpu::release(devices);
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
