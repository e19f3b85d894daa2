// The measurements: bandwidth of concurrent transfers, timed by events, whose data is checked, and
// latency of a kernel's small writes to a peer's memory.
#pragma once

#include "gpu.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace p2p {

enum class Method { kCopyEngine, kKernel };

// Repeated copies from one buffer to another, on one stream.
struct Flow {
    Method method = Method::kCopyEngine;
    const Gpu *runs_on = nullptr; // owner of the stream
    cudaStream_t stream = nullptr;
    const Gpu *src = nullptr; // GPU that owns `from`; null: host memory
    const Gpu *dst = nullptr; // GPU that owns `to`; null: host memory
    const char *from = nullptr;
    char *to = nullptr;
    size_t bytes = 0;  // of one copy
    uint32_t seed = 0; // of the data
};

// Flows that give one figure, timed from the start of the first to the end of the last.
struct Group {
    std::string what;
    std::vector<int> gpus;
    std::vector<Flow> flows;
};

// Measures groups concurrently; they must not share streams or receiving memory. Failures are
// reported per group. Throws HungError.
std::vector<Measurement> measure_together(const Machine &machine, std::vector<Group> groups,
                                          int repetitions);

// Measures a group that the driver stages through the host: the driver may block during the copy,
// so there is no common start, and one group is measured at a time.
Measurement measure_staged(const Machine &machine, Group group, int repetitions);

// GB/s by source and destination.
using Speeds = std::map<std::pair<int, int>, double>;

// Returns a flow that the source runs, or the destination if it `reads`.
Flow flow_between(const Machine &machine, Method method, int src, int dst, bool reads = false);

// Returns a copy between pinned host memory and one GPU.
Group host_group(const Machine &machine, const std::string &what, int index, bool to_gpu);

// Returns copies from one GPU to all peers that it can access, or from these to the GPU. The size
// of each copy is proportional to its bandwidth, so that all end at once unless they share links.
Group fan_group(const Machine &machine, const std::string &what, int hub, bool out,
                const Speeds &speeds);

// Measures a store and its fence from the first GPU of each pair to the second, all pairs at once;
// the pairs share no GPU. Throws HungError.
std::vector<Measurement> measure_write_latency(const Machine &machine,
                                               const std::vector<std::pair<int, int>> &pairs,
                                               int repetitions);

// Measures half of a flag's round trip to the peer.
std::vector<Measurement> measure_flag_latency(const Machine &machine,
                                              const std::vector<std::pair<int, int>> &pairs,
                                              int repetitions);

// Makes all measurements that the options select and appends them to the report; progress goes to
// standard error. Throws HungError; earlier measurements are in the report.
void measure_all(const Machine &machine, const Options &options, Clock::time_point begin,
                 Report &report);

} // namespace p2p
