// What this rank would do for a communicator, from its environment and bundle alone.
#ifndef TUCCL_EXECUTOR_PLAN_H
#define TUCCL_EXECUTOR_PLAN_H

#include "decision.h"

#include <memory>
#include <string>

struct tuccl_bundle;

namespace tuccl {

// What a rank's environment names, read once: nothing changes between one look at it and the next.
struct Table {
    bool wanted = false;  // Whether anything is asked of the executor.
    bool chooses = false; // Whether this process says call by call what runs (choose.h).
    uint32_t sum = 0;     // Of the bundle; ranks must agree on it.
    std::string source;   // For the log.
    std::string fault;    // Why this rank cannot serve; empty when it can.
    std::shared_ptr<const tuccl_bundle> bundle;

    // Ranks with equal ones conclude the same from it, whatever the communicator.
    uint64_t mark() const;
};

std::shared_ptr<const Table> read_table();

struct Plan {
    bool wanted = false; // As of the table.
    bool chooses = false;
    uint32_t sum = 0;
    std::string source;
    std::string fault;
    Decision decision;
    tuccl_staging staging = {}; // What it takes to run the decision's calls, or any.
    // Has programs that the communicator may run, all of them checked; NULL: it has none.
    std::shared_ptr<const tuccl_bundle> bundle;

    bool has_something() const {
        return bundle != nullptr;
    }
};

Plan make_plan(const Table &table, uint32_t ranks);

} // namespace tuccl

#endif
