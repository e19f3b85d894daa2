// Bandwidth: transfers that start together are timed by events, and their data is checked.
#pragma once

#include "gpu.h"

#include <string>
#include <vector>

namespace p2p {

enum class Method { kCopyEngine, kKernel };

// Data that moves from one place to another again and again, on one stream.
struct Flow {
    Method method = Method::kCopyEngine;
    const Gpu *runs_on = nullptr; // whose stream it is
    cudaStream_t stream = nullptr;
    const Gpu *src = nullptr; // GPU that owns `from`; null: host memory
    const Gpu *dst = nullptr; // GPU that owns `to`; null: host memory
    const char *from = nullptr;
    char *to = nullptr;
    size_t bytes = 0;  // of one copy
    uint32_t seed = 0; // of the data
};

// Flows that are timed together, from the first's start to the last's end: one figure.
struct Group {
    std::string what;
    std::vector<int> gpus;
    std::vector<Flow> flows;
};

// Measures groups at the same time; they must not share streams or receiving memory. Failures are
// reported per group. Throws HungError.
std::vector<Measurement> measure_together(const Machine &machine, std::vector<Group> groups,
                                          int repetitions);

// As above for flows that the driver stages through the host: it may block in the middle, so
// nothing holds the start, and only one group at a time makes sense.
Measurement measure_staged(const Machine &machine, Group group, int repetitions);

} // namespace p2p
