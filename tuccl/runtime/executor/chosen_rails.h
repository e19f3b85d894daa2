// What a schedule that a process chooses needs along its rail, prepared when it is chosen.
#ifndef TUCCL_EXECUTOR_CHOSEN_RAILS_H
#define TUCCL_EXECUTOR_CHOSEN_RAILS_H

#include "grid.h"
#include "program_runner.h"
#include "rails.h"

#include <atomic>

namespace tuccl {

// A served communicator across hosts.
struct RailOwner {
    ncclComm_t comm;
    int device_number;
    const Grid &grid;
    const std::atomic<bool> &gave_up; // Set by a thread that is about to abort it.
    const void *programs;
    ProgramRunner &runner;
    Rails &rails;
};

// Makes the communicators and connects the calls of a rule that are missing. All ranks call it
// alike, and agree: it succeeds on all of them or fails on all. Returns NULL, or the reason, which
// is valid until the thread's next call.
const char *prepare_rails(const RailOwner &owner, const Rule &rule, const NetworkNeed &need);

} // namespace tuccl

#endif
