// What the command line selects.
#pragma once

#include <cstddef>

namespace p2p {

struct Options {
    size_t bytes = size_t{256} << 20; // of the largest copy
    int repetitions = 7;
    double seconds = 60; // after which no step is started
    bool latency = true;
    bool copy_engine = true;
    bool kernel = true;
    bool host = true;
    bool help = false;
};

} // namespace p2p
