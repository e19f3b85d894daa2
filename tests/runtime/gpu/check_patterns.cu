// Runs the executor's patterns on the GPUs of this host and compares every byte with what it must
// be: random types, reductions, counts, alignments, in place and out of place, protocols, blocks,
// threads and numbers of ranks; also across the wrap of LL's flags. Then times of graphs of 20
// calls. Exit code 0: all right. All ranks in one process, or each in one that --rank names; ranks
// beyond the GPUs share them, which is good for the bytes, not for the times.
//
//   check_patterns [cases] [seed] [--no-times] [--ranks=N] [--rank=R --folder=MEETING] [--exact]
//                  [--largest=BYTES] [--threads=MOST] [--seconds=S] [--faulty]
#include "cases.cuh"
#include "times.cuh"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

using gpu::Case;
using gpu::Device;
using gpu::Options;
using gpu::pick;

namespace {

Case random_case(std::mt19937_64 &random, const Options &options) {
    static constexpr uint8_t kOperations[] = {TUCCL_ALL_REDUCE, TUCCL_ALL_REDUCE, TUCCL_ALL_GATHER,
                                              TUCCL_REDUCE_SCATTER, TUCCL_ALLTOALL};
    Case one = {};
    one.ranks = static_cast<uint32_t>(2 + pick(random, options.ranks - 2));
    gpu::draw_data(random, options, &one);
    one.call.operation = kOperations[pick(random, 4)];
    one.call.pattern = one.call.operation != TUCCL_ALL_REDUCE ? TUCCL_PATTERN_DIRECT
                       : pick(random, 1) != 0                 ? TUCCL_PATTERN_ONE_PHASE
                                                              : TUCCL_PATTERN_TWO_PHASE;
    one.call.protocol = static_cast<uint8_t>(pick(random, 1));
    // Blocks of ranks that share a GPU must all find room there at once.
    const size_t blocks = std::min<size_t>(40, 100 / gpu::sharing(one.ranks));
    one.call.nchannels = static_cast<uint16_t>(1 + pick(random, blocks - 1));
    one.call.nthreads = static_cast<uint16_t>(32 * (1 + pick(random, options.threads / 32 - 1)));
    // Whole units, for which there are kernels of their own.
    if (pick(random, 1) != 0)
        one.call.count = (one.call.count + 15) / 16 * 16;
    one.without_offsets = static_cast<uint32_t>(pick(random, 1) != 0 ? 0 : pick(random, 255));
    one.in_place = one.call.operation != TUCCL_ALLTOALL && pick(random, 2) == 0;
    return one;
}

// Shortly before LL's flags begin anew, or are halfway. All ranks must be done with what came
// before.
void set_epoch(std::vector<Device> &devices, uint64_t epoch, const Options &options) {
    const auto ranks = static_cast<uint32_t>(devices.size());
    gpu::meet(options, "before" + std::to_string(epoch), ranks);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (!options.owns(rank))
            continue;
        gpu::use_device_of(rank);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(devices[rank].comm->peers.counters, &epoch, sizeof epoch,
                         cudaMemcpyHostToDevice));
        CHECK(cudaDeviceSynchronize());
    }
    gpu::meet(options, "after" + std::to_string(epoch), ranks);
}

int run_cases(size_t cases, uint64_t seed, const Options &options) {
    std::vector<std::vector<Device>> groups(options.ranks + 1);
    for (uint32_t ranks = 2; ranks <= options.ranks; ranks++)
        groups[ranks] = gpu::devices_of(ranks, options);
    const auto draw = [&](std::mt19937_64 &random) {
        const Case one = random_case(random, options);
        return gpu::Drawn{one, &groups[one.ranks],
                          "operation " + std::to_string(one.call.operation) + " pattern " +
                              std::to_string(one.call.pattern)};
    };
    const auto before = [&](size_t number, std::vector<Device> &devices) {
        if (number % 500 == 250)
            set_epoch(devices,
                      ((number / 500 + 1) << 32) +
                          (number % 1000 == 250 ? 0xFFFFFFFFULL : 0x7FFFFFFFULL) - 7,
                      options);
    };
    const int result = gpu::run_cases(cases, seed, options, draw, before);
    for (uint32_t ranks = 2; ranks <= options.ranks; ranks++)
        gpu::release(groups[ranks], options);
    return result;
}

// A call whose send buffer was never written and whose receive buffer lacks its last byte, to see
// that memcheck and initcheck see it.
int run_faulty(const Options &options) {
    std::vector<Device> devices = gpu::devices_of(options.ranks, options);
    tuccl_call call = {};
    call.operation = TUCCL_ALL_GATHER;
    call.pattern = TUCCL_PATTERN_DIRECT;
    call.protocol = TUCCL_LL;
    call.count = 1001;
    call.nchannels = 1;
    call.nthreads = 64;
    std::vector<gpu::Buffers> buffers(options.ranks);
    for (uint32_t rank = 0; rank < options.ranks; rank++) {
        if (!options.owns(rank))
            continue;
        gpu::use_device_of(rank);
        CHECK(cudaMalloc(&buffers[rank].send_memory, call.count));
        CHECK(cudaMalloc(&buffers[rank].receive_memory, call.count * options.ranks - 1));
        call.send = buffers[rank].send_memory;
        call.receive = buffers[rank].receive_memory;
        CHECK(static_cast<cudaError_t>(
            tuccl_device_launch(devices[rank].comm, &call, devices[rank].stream)));
    }
    // A tool may end one rank's kernel, and then another one waits for it.
    std::this_thread::sleep_for(std::chrono::seconds(2));
    for (const Device &device : devices)
        if (device.comm != nullptr) {
            tuccl_device_abort(device.comm);
            (void)cudaStreamSynchronize(device.stream);
        }
    return 0;
}

void print_times(const Options &options) {
    const uint32_t ranks = options.ranks;
    std::vector<Device> devices = gpu::devices_of(ranks, options);
    const gpu::Room room(ranks);
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
                    const float us = gpu::time_us(devices, room, call, 20);
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
    gpu::release(devices, options);
}

} // namespace

int main(int argc, char **argv) {
    const Options options = gpu::options_of(argc, argv);
    if (options.faulty)
        return run_faulty(options);
    const int result =
        run_cases(gpu::word_or(options, 0, 2000), gpu::word_or(options, 1, 1), options);
    if (options.times && options.rank == gpu::kAllRanks)
        print_times(options);
    return result;
}
