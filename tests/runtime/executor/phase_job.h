// What the tests of schedules across hosts share: ranks as processes, whose hosts differ by
// NCCL_HOSTID.
#ifndef TUCCL_TEST_PHASE_JOB_H
#define TUCCL_TEST_PHASE_JOB_H

#include "processes.h"

#include <map>
#include <string>
#include <vector>

extern "C" {
uint64_t tuccl_executor_calls();
void stand_in_break_children();
int stand_in_live_communicators();
const ncclConfig *stand_in_config(ncclComm_t comm);
}

// One rank, in its own process.
class Seat {
  public:
    Seat(Launch *launch, int rank_, int local_ranks_)
        : rank(rank_), ranks(launch->ranks), local_ranks(local_ranks_), launch_(launch) {
    }

    const int rank;
    const int ranks;
    const int local_ranks; // Of the first host.
    stand_in::Stream stream;

    // As Launch.
    std::vector<int64_t> tell(const char *step, int64_t mine) {
        return launch_->tell(rank, step, mine);
    }
    void meet(const char *step) {
        (void)tell(step, 0);
    }
    // Whether it is true on all ranks, or on none: else the test fails.
    bool agree(const char *step, bool mine);

    // Returns the result of ncclCommInitRank; all ranks call it. Without the executor: NCCL's own.
    int start(ncclComm_t *comm, bool has_executor = true);
    int start(ncclComm_t *comm, ncclConfig *config);
    ncclComm_t started();

  private:
    Launch *launch_;
};

// Whether the executor, and not NCCL alone, runs what `body` calls; the same on all ranks.
template <typename Body> bool runs(Seat &seat, const Body &body) {
    const uint64_t before = tuccl_executor_calls();
    body();
    return seat.agree("count", tuccl_executor_calls() != before);
}

// An all_reduce of int32 that is checked, alone.
bool is_served(Seat &seat, ncclComm_t comm, size_t count = 64);

// The scenarios by name. SCENARIO(name) { ... } adds one, which each rank plays in its `seat`.
inline std::map<std::string, void (*)(Seat &seat)> &scenarios() {
    static std::map<std::string, void (*)(Seat &seat)> all;
    return all;
}

#define SCENARIO(name)                                                                             \
    void name(Seat &seat);                                                                         \
    [[maybe_unused]] const bool has_##name = scenarios().emplace(#name, name).second;              \
    void name(Seat &seat)

// All ranks leave the communicator to NCCL, and nothing of the executor's remains.
void off_on_all(Seat &seat);
// The executor serves a communicator, which is destroyed then.
void served(Seat &seat);

#endif
