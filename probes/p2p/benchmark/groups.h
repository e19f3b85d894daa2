// Groups of flows between GPUs, and between host and GPU.
#pragma once

#include "transfer.h"

#include <map>
#include <string>
#include <utility>

namespace p2p {

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

} // namespace p2p
