// Selection of a call's kernel, and division of messages above the staging area into launches.
#include "device_comm.h"
#include "patterns.cuh"

#include <set>
#include <type_traits>

namespace tuccl {

namespace {

using Kernel = void (*)(Work, Peers);

struct OnePhase {};
struct AnyReduction {};

template <typename Pattern, typename Port, typename Reduce, uint32_t kRanks>
constexpr Kernel kernel_for() {
    if constexpr (std::is_same_v<Pattern, OnePhase>)
        return one_phase<Port, Reduce, kRanks>;
    else
        return run_pattern<Pattern, Port, Reduce, kRanks>;
}

// For all buffers.
template <typename Pattern, typename Port, typename Reduce, uint32_t kMost>
constexpr Kernel for_up_to() {
    using Reducing = std::conditional_t<std::is_same_v<Reduce, AnyReduction>, Any<kMost>, Reduce>;
    return kernel_for<Pattern, typename Port::AnyBuffers, Reducing, kUpTo + kMost>();
}

// Kernels are compiled for 2, 4 and 8 ranks, and for any number up to 8 and up to the most. Those
// for any number, and for whatever type and reduction, do for all buffers.
template <typename Pattern, typename Port, typename Reduce> Kernel for_ranks(uint32_t ranks) {
    constexpr uint32_t kFewRanks = 8;
    if constexpr (!std::is_same_v<Reduce, AnyReduction>) {
        switch (ranks) {
        case 2:
            return kernel_for<Pattern, Port, Reduce, 2>();
        case 4:
            return kernel_for<Pattern, Port, Reduce, 4>();
        case 8:
            return kernel_for<Pattern, Port, Reduce, 8>();
        default:
            break;
        }
    }
    return ranks <= kFewRanks ? for_up_to<Pattern, Port, Reduce, kFewRanks>()
                              : for_up_to<Pattern, Port, Reduce, kMostKernelRanks>();
}

template <typename Port, typename Reduce>
Kernel reducing_kernel(const tuccl_call &call, uint32_t ranks) {
    if (call.operation == TUCCL_REDUCE_SCATTER)
        return for_ranks<Scatter, Port, Reduce>(ranks);
    return call.pattern == TUCCL_PATTERN_ONE_PHASE ? for_ranks<OnePhase, Port, Reduce>(ranks)
                                                   : for_ranks<TwoPhase, Port, Reduce>(ranks);
}

// `Element`: void for any.
template <typename Port, typename Element>
Kernel summing_kernel(const tuccl_call &call, uint32_t ranks) {
    if constexpr (std::is_void_v<Element>)
        return reducing_kernel<Port, AnyReduction>(call, ranks);
    else if (call.reduction == TUCCL_AVG)
        return reducing_kernel<Port, Fixed<Element, TUCCL_AVG>>(call, ranks);
    else
        return reducing_kernel<Port, Fixed<Element, TUCCL_SUM>>(call, ranks);
}

template <typename Port> Kernel kernel_of_port(const tuccl_call &call, uint32_t ranks) {
    if (call.operation == TUCCL_ALL_GATHER)
        return for_ranks<Gather, Port, void>(ranks);
    if (call.operation == TUCCL_ALLTOALL)
        return for_ranks<Exchange, Port, void>(ranks);
    return with_frequent_sum(call.type, call.reduction, [&](auto element) {
        return summing_kernel<Port, typename decltype(element)::Type>(call, ranks);
    });
}

template <template <bool kWhole> class Port>
Kernel kernel_of(const tuccl_call &call, uint32_t ranks, bool whole) {
    return whole ? kernel_of_port<Port<true>>(call, ranks)
                 : kernel_of_port<Port<false>>(call, ranks);
}

// Data of one source that its part of the staging area holds; slices end at 16 bytes.
template <typename Port> size_t capacity(const Peers &peers) {
    return Port::part_of(peers) / Port::kLineBytes * Port::kUnitBytes / 16 * 16;
}

} // namespace

bool pattern_supports(const tuccl_device_comm &comm, const tuccl_call &call) {
    if (comm.peers.ranks < 2 || call.type >= TUCCL_TYPES || call.reduction >= TUCCL_REDUCTIONS ||
        call.nchannels == 0 || call.nthreads < 32 || call.nthreads > 1024 ||
        call.nthreads % 32 != 0)
        return false;
    if (!has_pattern_kernel(call.operation, call.pattern, call.protocol, comm.peers.ranks) ||
        (call.protocol == TUCCL_LL128 && !comm.nvlink))
        return false;
    const uint32_t phases = call.pattern == TUCCL_PATTERN_TWO_PHASE ? 2 : 1;
    return phases <= comm.staging.phases[call.protocol];
}

// Loads every kernel that a communicator of `ranks` ranks may launch. CUDA loads a kernel at its
// first use, which may wait for a running kernel: for ever, if that waits for another rank.
int load_patterns(uint32_t ranks) {
    if (ranks > kMostKernelRanks)
        return cudaSuccess;
    static constexpr uint8_t kReducing[][2] = {{TUCCL_ALL_REDUCE, TUCCL_PATTERN_ONE_PHASE},
                                               {TUCCL_ALL_REDUCE, TUCCL_PATTERN_TWO_PHASE},
                                               {TUCCL_REDUCE_SCATTER, TUCCL_PATTERN_DIRECT}};
    static constexpr uint8_t kMoving[] = {TUCCL_ALL_GATHER, TUCCL_ALLTOALL};
    std::set<Kernel> kernels;
    tuccl_call call = {};
    const auto add = [&] {
        for (const bool whole : {false, true}) {
            kernels.insert(kernel_of<LlPort>(call, ranks, whole));
            kernels.insert(kernel_of<Ll128Port>(call, ranks, whole));
        }
    };
    for (const auto &[operation, pattern] : kReducing)
        for (uint8_t type = 0; type < TUCCL_TYPES; type++)
            for (uint8_t reduction = 0; reduction < TUCCL_REDUCTIONS; reduction++) {
                call.operation = operation;
                call.pattern = pattern;
                call.type = type;
                call.reduction = reduction;
                add();
            }
    for (const uint8_t operation : kMoving) {
        call.operation = operation;
        add();
    }
    for (const Kernel kernel : kernels)
        if (const int error = load_kernel(reinterpret_cast<const void *>(kernel)))
            return error;
    return cudaSuccess;
}

int launch_pattern(const tuccl_device_comm &comm, const tuccl_call &call, cudaStream_t stream) {
    const uint32_t ranks = comm.peers.ranks;
    const bool low_latency = call.protocol == TUCCL_LL;
    const size_t bytes = call.count * type_bytes(call.type);
    const bool sharded = call.pattern == TUCCL_PATTERN_TWO_PHASE;
    const size_t part =
        low_latency ? capacity<LlPort<true>>(comm.peers) : capacity<Ll128Port<true>>(comm.peers);
    const size_t slice = sharded ? part * ranks : part;
    const size_t stride = call.stride_bytes != 0 ? call.stride_bytes : bytes;
    Peers peers = comm.peers;
    for (uint32_t after = 0; after < ranks; after++)
        peers.staging[after] = comm.areas[(peers.rank + after) % ranks];
    for (size_t first = 0; first < bytes; first += slice) {
        const size_t now = bytes - first < slice ? bytes - first : slice;
        Work work = {static_cast<const char *>(call.send) + first,
                     static_cast<char *>(call.receive) + first,
                     sharded ? (now + 16 * ranks - 1) / (16 * ranks) * 16 : stride,
                     static_cast<uint32_t>(now),
                     call.type,
                     call.reduction};
        const bool whole = is_whole(work, call.protocol);
        const Kernel kernel = low_latency ? kernel_of<LlPort>(call, ranks, whole)
                                          : kernel_of<Ll128Port>(call, ranks, whole);
        void *arguments[] = {&work, &peers};
        const cudaError_t error =
            cudaLaunchKernel(reinterpret_cast<const void *>(kernel), dim3(call.nchannels),
                             dim3(call.nthreads), arguments, 0, stream);
        if (error != cudaSuccess)
            return error;
    }
    return cudaSuccess;
}

} // namespace tuccl
