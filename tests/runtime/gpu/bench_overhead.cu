// What interpreting costs: the all-pairs schedules on four GPUs, interpreted, by the kernel made
// for their pattern, and by kernels written by hand for one collective of 16-bit floats
// (hand_written.cuh); microseconds in graphs of 20 calls, best of a few blocks and threads. Results
// of all of them are looked at once a size. Exit code 0: all right, and the table is whole.
//
//   bench_overhead FOLDER [--seconds=S]
#include "hand_written.cuh"
#include "programs.cuh"
#include "times.cuh"

#include <cuda_fp16.h>

using gpu::Group;
using gpu::Options;

namespace {

constexpr uint32_t kRanks = hand::kRanks;
constexpr int kCalls = 20;
constexpr size_t kSizes[] = {1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20};

struct Row {
    const char *program;
    const char *name;
    uint8_t protocol;
    hand::Kind kind;
};

constexpr Row kRows[] = {
    {"all_reduce_all_pairs_one_phase", "all_reduce, one phase", TUCCL_LL, hand::Kind::kAllReduce},
    {"all_gather_all_pairs", "all_gather", TUCCL_LL, hand::Kind::kAllGather},
    {"reduce_scatter_all_pairs", "reduce_scatter", TUCCL_LL, hand::Kind::kReduceScatter},
    {"all_reduce_all_pairs_two_phase", "all_reduce, two phases", TUCCL_LL, hand::Kind::kTwoPhase},
    {"all_reduce_all_pairs_one_phase", "all_reduce, one phase", TUCCL_LL128,
     hand::Kind::kAllReduce},
    {"all_gather_all_pairs", "all_gather", TUCCL_LL128, hand::Kind::kAllGather},
    {"reduce_scatter_all_pairs", "reduce_scatter", TUCCL_LL128, hand::Kind::kReduceScatter},
    {"all_reduce_all_pairs_two_phase", "all_reduce, two phases", TUCCL_LL128,
     hand::Kind::kTwoPhase},
    {"all_reduce_all_pairs_one_phase", "all_reduce, one phase", TUCCL_SIMPLE,
     hand::Kind::kAllReduce},
    {"all_gather_all_pairs", "all_gather", TUCCL_SIMPLE, hand::Kind::kAllGather},
    {"reduce_scatter_all_pairs", "reduce_scatter", TUCCL_SIMPLE, hand::Kind::kReduceScatter},
    {"all_reduce_all_pairs_two_phase", "all_reduce, two phases", TUCCL_SIMPLE,
     hand::Kind::kTwoPhase},
};

struct Shape {
    unsigned blocks;
    unsigned threads;
};

bool is_divided(const tuccl_call &call) {
    return call.operation == TUCCL_ALL_GATHER || call.operation == TUCCL_REDUCE_SCATTER;
}

// Memory of the kernels written by hand.
struct Hand {
    hand::Peers peers[kRanks] = {};

    explicit Hand(const gpu::Room &room) {
        char *staging[kRanks];
        uint64_t *flags[kRanks];
        for (uint32_t rank = 0; rank < kRanks; rank++) {
            gpu::use_device_of(rank);
            CHECK(cudaMalloc(&staging[rank], hand::kStagingBytes));
            CHECK(cudaMalloc(&flags[rank], hand::kFlagBytes));
            CHECK(cudaMalloc(&peers[rank].epoch, 512));
            CHECK(cudaMemset(staging[rank], 0, hand::kStagingBytes));
            CHECK(cudaMemset(flags[rank], 0, hand::kFlagBytes));
            CHECK(cudaMemset(peers[rank].epoch, 0, 512));
            CHECK(cudaDeviceSynchronize());
        }
        for (uint32_t rank = 0; rank < kRanks; rank++) {
            peers[rank].rank = rank;
            for (uint32_t other = 0; other < kRanks; other++) {
                peers[rank].send[other] = room.send[other];
                peers[rank].receive[other] = room.receive[other];
                peers[rank].staging[other] = staging[other];
                peers[rank].flags[other] = flags[other];
            }
        }
    }
};

using Kernel = void (*)(hand::Peers);

// What there is by hand: no LL128, and two phases only by loads and stores.
Kernel kernel_of(const Row &row) {
    switch (row.kind) {
    case hand::Kind::kAllReduce:
        return row.protocol == TUCCL_LL ? hand::ll<hand::Kind::kAllReduce>
                                        : hand::direct<hand::Kind::kAllReduce>;
    case hand::Kind::kAllGather:
        return row.protocol == TUCCL_LL ? hand::ll<hand::Kind::kAllGather>
                                        : hand::direct<hand::Kind::kAllGather>;
    case hand::Kind::kReduceScatter:
        return row.protocol == TUCCL_LL ? hand::ll<hand::Kind::kReduceScatter>
                                        : hand::direct<hand::Kind::kReduceScatter>;
    default:
        return row.protocol == TUCCL_LL ? nullptr : hand::direct<hand::Kind::kTwoPhase>;
    }
}

// Small whole numbers that tell ranks and places apart.
float value_at(uint32_t rank, size_t element) {
    return static_cast<float>((element * 7 + rank * 13) % 61);
}

void fill(const gpu::Room &room) {
    std::vector<__half> host(hand::kMostBytes / 2);
    for (uint32_t rank = 0; rank < kRanks; rank++) {
        for (size_t i = 0; i < host.size(); i++)
            host[i] = __float2half(value_at(rank, i));
        gpu::use_device_of(rank);
        CHECK(cudaMemcpy(room.send[rank], host.data(), host.size() * 2, cudaMemcpyHostToDevice));
        CHECK(cudaDeviceSynchronize());
    }
}

float wanted_at(const tuccl_call &call, uint32_t rank, size_t element) {
    if (call.operation == TUCCL_ALL_GATHER)
        return value_at(static_cast<uint32_t>(element / call.count), element % call.count);
    const size_t at = element + (call.operation == TUCCL_REDUCE_SCATTER ? rank * call.count : 0);
    float sum = 0;
    for (uint32_t each = 0; each < kRanks; each++)
        sum += value_at(each, at);
    return sum;
}

// Elements of the receive buffers that are not what the call must leave there, after `put` on all.
template <typename Put>
size_t wrong_after(const Group &group, const gpu::Room &room, const tuccl_call &call, Put put) {
    const size_t elements = call.count * (call.operation == TUCCL_ALL_GATHER ? kRanks : 1);
    std::vector<__half> host(elements);
    for (uint32_t rank = 0; rank < kRanks; rank++) {
        gpu::use_device_of(rank);
        CHECK(cudaMemset(room.receive[rank], 0xFF, elements * 2));
        CHECK(cudaDeviceSynchronize());
    }
    for (uint32_t rank = 0; rank < kRanks; rank++) {
        gpu::use_device_of(rank);
        put(rank);
    }
    size_t wrong = 0;
    for (uint32_t rank = 0; rank < kRanks; rank++) {
        gpu::use_device_of(rank);
        CHECK(cudaStreamSynchronize(group.devices[rank].stream));
    }
    for (uint32_t rank = 0; rank < kRanks; rank++) {
        gpu::use_device_of(rank);
        CHECK(cudaMemcpy(host.data(), room.receive[rank], elements * 2, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < elements; i++)
            wrong += __half2float(host[i]) != wanted_at(call, rank, i);
    }
    return wrong;
}

class Bench {
  public:
    Bench(Group &group, const Options &options)
        : group_(group), room_(kRanks), hand_(room_), clock_(options) {
        fill(room_);
    }

    // Whether the results are right; false too when time is up.
    bool run(const Row &row) {
        static constexpr const char *kProtocols[] = {"LL", "LL128", "Simple"};
        const auto name = std::find(group_.names.begin(), group_.names.end(), row.program);
        if (name == group_.names.end())
            gpu::give_up(std::string("there is no program ") + row.program);
        std::printf("%-23s %-6s", row.name, kProtocols[row.protocol]);
        const auto index = static_cast<uint32_t>(name - group_.names.begin());
        bool right = true;
        for (const size_t bytes : kSizes) {
            if (!clock_.goes_on(0)) {
                std::printf(" time is up\n");
                return false;
            }
            right &= run(row, index, bytes);
        }
        std::printf("%s\n", right ? "" : " WRONG");
        return right;
    }

  private:
    bool run(const Row &row, uint32_t index, size_t bytes) {
        tuccl_call call = gpu::call_of(group_, index, row.protocol);
        call.type = TUCCL_FLOAT16;
        call.count = bytes / 2 / (is_divided(call) ? kRanks : 1);
        call.buffer_bytes = size_t{4} << 20;
        bool right = true;
        const bool small = bytes <= 1 << 16;
        const float program =
            best(call,
                 small ? std::vector<Shape>{{1, 256}, {1, 512}, {2, 512}, {8, 256}, {16, 512}}
                       : std::vector<Shape>{{8, 512}, {16, 512}, {32, 512}, {64, 512}},
                 &right);
        call.program = UINT32_MAX;
        call.pattern = group_.header(index).pattern;
        const std::vector<Shape> shapes =
            small ? std::vector<Shape>{{1, 256}, {2, 512}, {8, 256}, {16, 512}}
                  : std::vector<Shape>{{16, 512}, {32, 512}, {64, 512}, {64, 256}};
        const float pattern = best(call, shapes, &right);
        const float by_hand = best_by_hand(row, call, bytes, shapes, &right);
        print(program);
        print(pattern);
        print(by_hand);
        std::printf(" |");
        return right;
    }

    static void print(float us) {
        if (us > 0)
            std::printf(" %6.2f", us);
        else
            std::printf("      -");
    }

    // 0 where the executor has none.
    float best(tuccl_call call, const std::vector<Shape> &shapes, bool *right) {
        float least = 0;
        for (const Shape &shape : shapes) {
            call.nchannels = static_cast<uint16_t>(shape.blocks);
            call.nthreads = static_cast<uint16_t>(shape.threads);
            if (!tuccl_device_supports(group_.devices[0].comm, &call))
                continue;
            if (least == 0)
                *right &= wrong_after(group_, room_, call, [&](uint32_t rank) {
                              tuccl_call own = call;
                              own.send = room_.send[rank];
                              own.receive = room_.receive[rank];
                              CHECK(static_cast<cudaError_t>(tuccl_device_launch(
                                  group_.devices[rank].comm, &own, group_.devices[rank].stream)));
                          }) == 0;
            const float us = gpu::time_us(group_.devices, room_, call, kCalls);
            least = least == 0 ? us : std::min(least, us);
        }
        return least;
    }

    float best_by_hand(const Row &row, const tuccl_call &call, size_t bytes,
                       const std::vector<Shape> &shapes, bool *right) {
        const Kernel kernel = kernel_of(row);
        if (kernel == nullptr || row.protocol == TUCCL_LL128)
            return 0;
        float least = 0;
        for (const Shape &shape : shapes) {
            const auto put = [&](uint32_t rank) {
                hand::Peers peers = hand_.peers[rank];
                peers.bytes = static_cast<uint32_t>(bytes / (is_divided(call) ? kRanks : 1));
                kernel<<<shape.blocks, shape.threads, 0, group_.devices[rank].stream>>>(peers);
                CHECK(cudaGetLastError());
            };
            if (least == 0)
                *right &= wrong_after(group_, room_, call, put) == 0;
            const float us = gpu::time_us(group_.devices, kCalls, put);
            least = least == 0 ? us : std::min(least, us);
        }
        return least;
    }

    Group &group_;
    const gpu::Room room_;
    const Hand hand_;
    gpu::Clock clock_;
};

// CUDA loads a kernel when it is first used, which may wait for one that runs.
void load_kernels() {
    for (const Row &row : kRows)
        if (const Kernel kernel = kernel_of(row))
            for (uint32_t rank = 0; rank < kRanks; rank++) {
                gpu::use_device_of(rank);
                cudaFuncAttributes attributes;
                CHECK(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(kernel)));
            }
}

} // namespace

int main(int argc, char **argv) {
    const Options options = gpu::options_of(argc, argv);
    if (options.words.empty() || options.ranks != kRanks)
        gpu::give_up("bench_overhead FOLDER [--seconds=S], on four GPUs");
    std::vector<Group> groups = gpu::load_groups(options.words[0], kRanks, options);
    load_kernels();
    int result = 0;
    {
        Bench bench(groups[0], options);
        std::printf("us: interpreted, its pattern's kernel, by hand%-15s", "");
        for (const size_t bytes : kSizes)
            std::printf("%13zu KB       ", bytes >> 10);
        std::printf("\n");
        for (const Row &row : kRows)
            result |= bench.run(row) ? 0 : 1;
    }
    gpu::release(groups[0].devices, options);
    return result;
}
