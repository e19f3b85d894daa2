// Latency: small writes of a kernel into a peer's memory.
#pragma once

#include "gpu.h"

#include <vector>

namespace p2p {

// A store and the fence after it, from the first GPU of each pair to the second; all pairs at
// once, no GPU twice. Throws HungError.
std::vector<Measurement> measure_write_latency(const Machine &machine,
                                               const std::vector<std::pair<int, int>> &pairs,
                                               int repetitions);

// Half of the time in which a flag goes to the other GPU and back.
std::vector<Measurement> measure_flag_latency(const Machine &machine,
                                              const std::vector<std::pair<int, int>> &pairs,
                                              int repetitions);

} // namespace p2p
