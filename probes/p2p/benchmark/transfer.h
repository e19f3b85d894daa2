// Bandwidth: concurrent transfers are timed by events, and their data is checked.
#pragma once

#include "gpu.h"

#include <string>
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

} // namespace p2p
