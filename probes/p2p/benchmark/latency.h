// Latency of small writes of a kernel to a peer's memory.
#pragma once

#include "gpu.h"

#include <vector>

namespace p2p {

// Measures a store and its fence from the first GPU of each pair to the second, all pairs at once;
// the pairs share no GPU. Throws HungError.
std::vector<Measurement> measure_write_latency(const Machine &machine,
                                               const std::vector<std::pair<int, int>> &pairs,
                                               int repetitions);

// Measures half of a flag's round trip to the peer.
std::vector<Measurement> measure_flag_latency(const Machine &machine,
                                              const std::vector<std::pair<int, int>> &pairs,
                                              int repetitions);

} // namespace p2p
