// Runs calls of schedules in stages and rounds: stages by the executor's kernels inside the node,
// rounds as groups of NCCL's sends and receives on a communicator of all ranks.
//
// Stages run on the call's stream. Where a call has several slices, rounds run on a stream of the
// communicator's own, so that the network carries one slice while kernels work on the next; events
// keep the stages and rounds of a slice in order. All ranks enqueue the same of all slices in one
// order, and each waits only for what is enqueued before it. So ranks cannot wait for each other in
// a circle, even if a device runs both streams one after the other.
#ifndef TUCCL_EXECUTOR_STAGED_RUNNER_H
#define TUCCL_EXECUTOR_STAGED_RUNNER_H

#include "decision.h"
#include "nccl_abi.h"
#include "staged_plan.h"

#include <atomic>
#include <cstddef>
#include <map>

namespace tuccl {

class StagedRunner {
  public:
    // Plans the programs of a decision's rules that are staged, or all of them for the grid where
    // the process chooses. `programs`: a sound section that outlives it.
    StagedRunner(const Grid &grid, const void *programs, const Decision *decision);

    // Loads all stages onto the device, which is prepared with so much memory and two streams for
    // each of `most_lanes`, one at least. Returns NULL, or the reason of a failure.
    const char *load(tuccl_device_comm *device, const tuccl_staging &staging, size_t scratch_bytes,
                     uint32_t most_lanes);

    // `network`: all ranks, in their order; NULL: no call is supported. Not beside a call.
    void use(ncclComm_t network) {
        network_ = network;
    }

    // Whether a program is one of those; `supports`: whether it can run a call, the same on every
    // rank.
    bool has(uint32_t program) const {
        return plans_.count(program) != 0;
    }
    bool supports(const tuccl_call &call) const;

    // Enqueues a call; not inside a group of NCCL's. `gave_up` may be set by another thread, which
    // then ends the network's communicator. Returns an ncclResult_t.
    int run(const tuccl_call &call, ncclStream stream, const std::atomic<bool> &gave_up) const;

  private:
    class Run;

    void add(uint32_t program, const Grid &grid);

    const void *programs_;
    std::map<uint32_t, StagedPlan> plans_;
    std::vector<tuccl_stage_step> steps_; // Of all plans.
    tuccl_device_comm *device_ = nullptr;
    tuccl_staging staging_ = {};
    size_t scratch_bytes_ = 0;
    uint32_t most_lanes_ = 1;
    ncclComm_t network_ = nullptr;
};

} // namespace tuccl

#endif
