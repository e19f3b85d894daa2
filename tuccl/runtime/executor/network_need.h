// The communicators that schedules across hosts split from the job's.
#ifndef TUCCL_EXECUTOR_NETWORK_NEED_H
#define TUCCL_EXECUTOR_NETWORK_NEED_H

#include <cstdint>

namespace tuccl {

struct NetworkNeed {
    uint32_t lanes = 0;      // Of each rail.
    bool has_rounds = false; // One of all ranks, for sends and receives.
};

} // namespace tuccl

#endif
