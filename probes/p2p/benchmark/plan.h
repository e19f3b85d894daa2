// Which measurements are made, in which order, and what runs beside what.
#pragma once

#include "gpu.h"

namespace p2p {

// Measures everything that the options ask for and appends it to the report; progress goes to
// standard error. Throws HungError; what was measured until then is in the report.
void measure_all(const Machine &machine, const Options &options, Clock::time_point begin,
                 Report &report);

} // namespace p2p
