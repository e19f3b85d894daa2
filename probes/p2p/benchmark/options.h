// The command line.
#pragma once

#include <cstddef>
#include <string>

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

extern const char *const kUsage;

// Returns an empty text, or the error in the arguments.
std::string parse_options(int count, char **arguments, Options &options);

} // namespace p2p
