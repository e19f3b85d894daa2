#include "measure.h"

#include <functional>

namespace p2p {
namespace {

constexpr uint32_t kIterations = 500;
constexpr uint64_t kLimitNs = 2000000000;

using Pair = std::pair<int, int>;
// Launches kernels between two GPUs, with the flag at this offset, in words, in each GPU's memory.
using Launch = std::function<void(const Gpu &, const Gpu &, size_t, LatencyResult *)>;

cudaStream_t stream_between(const Gpu &gpu, const Gpu &peer) {
    return gpu.streams[static_cast<size_t>(peer.device)];
}

void clear_flags(const Gpu &gpu, const Gpu &peer) {
    gpu.use();
    cudaStream_t stream = stream_between(gpu, peer);
    check(cudaMemsetAsync(gpu.flags, 0, kFlagBytes, stream), "clearing flags");
    wait_for(stream, "clearing flags");
}

// Takes one sample of every pair: launches all, then waits for all. Failures are stored per pair.
void sample(const Machine &machine, const std::vector<Pair> &pairs, const Launch &launch,
            size_t flag, double share, std::vector<Measurement> &measured) {
    auto fail = [&](size_t i, const std::string &detail) {
        measured[i].status = Status::kFailed;
        measured[i].detail = detail;
        measured[i].samples.clear();
    };
    auto for_each_valid = [&](const std::function<void(size_t, const Gpu &, const Gpu &)> &work) {
        for (size_t i = 0; i < pairs.size(); i++) {
            if (measured[i].status != Status::kOk)
                continue;
            try {
                work(i, machine.gpus[pairs[i].first], machine.gpus[pairs[i].second]);
            } catch (const CudaError &error) {
                fail(i, error.what());
            }
        }
    };
    LatencyResult *results = machine.control->latency;
    for_each_valid([&](size_t i, const Gpu &a, const Gpu &b) {
        results[i] = {0, 0};
        clear_flags(a, b);
        clear_flags(b, a);
    });
    for_each_valid([&](size_t i, const Gpu &a, const Gpu &b) { launch(a, b, flag, &results[i]); });
    for_each_valid([&](size_t i, const Gpu &a, const Gpu &b) {
        wait_for(stream_between(a, b), "latency kernel");
        wait_for(stream_between(b, a), "latency kernel");
        if (results[i].elapsed_ns == 0)
            return fail(i, "the peer did not answer within 2 seconds");
        double us = static_cast<double>(results[i].elapsed_ns) / 1e3;
        measured[i].samples.push_back(us * share / static_cast<double>(results[i].iterations));
    });
}

std::vector<Measurement> measure(const Machine &machine, const std::vector<Pair> &pairs,
                                 const char *what, const Launch &launch, double share,
                                 int repetitions) {
    std::vector<Measurement> measured;
    for (auto [a, b] : pairs)
        measured.push_back({what, {a, b}, "us", {}, Status::kOk, ""});
    sample(machine, pairs, launch, 0, share, measured);
    for (Measurement &first : measured)
        first.samples.clear(); // a warm-up
    for (int i = 0; i < repetitions; i++)
        sample(machine, pairs, launch, static_cast<size_t>(i) % kFlagPositions * kFlagStride, share,
               measured);
    return measured;
}

} // namespace

std::vector<Measurement> measure_write_latency(const Machine &machine,
                                               const std::vector<Pair> &pairs, int repetitions) {
    auto launch = [](const Gpu &a, const Gpu &b, size_t flag, LatencyResult *result) {
        a.use();
        check(write_and_fence(b.flags + flag, kIterations, kLimitNs, result, stream_between(a, b)),
              "latency kernel");
    };
    return measure(machine, pairs, "write_latency", launch, 1.0, repetitions);
}

std::vector<Measurement> measure_flag_latency(const Machine &machine,
                                              const std::vector<Pair> &pairs, int repetitions) {
    auto launch = [](const Gpu &a, const Gpu &b, size_t flag, LatencyResult *result) {
        for (bool serves : {false, true}) {
            const Gpu &own = serves ? a : b, &peer = serves ? b : a;
            own.use();
            check(exchange_flags(own.flags + flag, peer.flags + flag, kIterations, serves, kLimitNs,
                                 result, stream_between(own, peer)),
                  "latency kernel");
        }
    };
    return measure(machine, pairs, "flag_latency", launch, 0.5, repetitions);
}

} // namespace p2p
