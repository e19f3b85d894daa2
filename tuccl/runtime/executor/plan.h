// What this rank would do for a communicator, from its environment and bundle alone.
#ifndef TUCCL_EXECUTOR_PLAN_H
#define TUCCL_EXECUTOR_PLAN_H

#include "decision.h"

#include <string>
#include <vector>

namespace tuccl {

struct Plan {
    bool wanted = false; // Whether anything is asked of the executor.
    uint32_t sum = 0;    // Of everything that decides; ranks must agree on it.
    std::string source;  // For the log.
    std::string fault;   // Why this rank cannot serve; empty when it can.
    Decision decision;
    tuccl_staging staging = {};          // What it takes to run the decision's calls.
    std::vector<unsigned char> programs; // For tuccl_device_comm_load_programs.
};

Plan read_plan(uint32_t ranks);

} // namespace tuccl

#endif
