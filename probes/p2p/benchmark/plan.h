// The measurements, their order, and those that run concurrently.
#pragma once

#include "gpu.h"

namespace p2p {

// Makes all measurements that the options select and appends them to the report; progress goes to
// standard error. Throws HungError; earlier measurements are in the report.
void measure_all(const Machine &machine, const Options &options, Clock::time_point begin,
                 Report &report);

} // namespace p2p
