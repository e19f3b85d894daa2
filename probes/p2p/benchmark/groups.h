// Flows between GPUs, and between host and GPU, put together for measuring.
#pragma once

#include "transfer.h"

#include <map>
#include <string>
#include <utility>

namespace p2p {

// GB/s by source and destination.
using Speeds = std::map<std::pair<int, int>, double>;

// The source pushes, unless the destination's kernel reads.
Flow flow_between(const Machine &machine, Method method, int src, int dst, bool reads = false);

// Between pinned host memory and one GPU.
Group host_group(const Machine &machine, const std::string &what, int place, bool to_gpu);

// One to all others that it has access to, or all those to one. Each part is as large as its way
// is fast, so that all end at once unless they share a way.
Group fan_group(const Machine &machine, const std::string &what, int hub, bool out,
                const Speeds &speeds);

} // namespace p2p
