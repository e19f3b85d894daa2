// Runs calls across hosts: the phases of a program, of which kernels run those inside nodes, and
// NCCL those on the network.
//
// Phases inside the node run on the call's stream. If a call has several slices, its phases on the
// network run on streams of the communicator's own, one for each lane, so that the network carries
// slices while kernels work on the next; events keep the phases of a slice in order. All ranks
// enqueue the same phases in the same order, and every phase waits only for phases enqueued before
// it. What runs inside the node beside a round is put on the call's stream with it. So ranks cannot
// wait for each other in a circle, even if a device runs all streams one after the other.
#ifndef TUCCL_EXECUTOR_PROGRAM_RUNNER_H
#define TUCCL_EXECUTOR_PROGRAM_RUNNER_H

#include "decision.h"
#include "rails.h"
#include "statement_plan.h"

#include <atomic>
#include <cstddef>
#include <map>
#include <vector>

namespace tuccl {

class ProgramRunner {
  public:
    // Plans the statements of a decision's programs, or of all programs for the grid if the process
    // chooses. `programs`: a sound section that outlives it.
    ProgramRunner(const Grid &grid, const void *programs, const Decision *decision);

    // Loads all stages onto the device, which is prepared with so much memory and two streams for
    // each of `most_lanes`, one at least. Returns NULL, or the reason of a failure.
    const char *load(tuccl_device_comm *device, const tuccl_staging &staging, size_t scratch_bytes,
                     uint32_t most_lanes);

    // Takes over the communicators that there are now. Not beside a call.
    void use(Rails &rails);
    RailMemory memory(int device_number) const;

    // Returns whether it can run a call; the same on every rank.
    bool supports(const tuccl_call &call) const;

    // Enqueues a call; not inside a group of NCCL's. `gave_up` may be set by another thread, which
    // then ends the communicators: they are used no more. Returns an ncclResult_t.
    int run(const tuccl_call &call, ncclStream stream, const std::atomic<bool> &gave_up) const;

  private:
    struct Started;
    class UniformRun;
    class StatementRun;

    void add(uint32_t number, const Grid &grid);
    bool supports_uniform(const tuccl_program &program, const tuccl_call &call) const;
    bool supports_statements(const tuccl_program &program, const tuccl_call &call) const;
    // `beside`: whether a single slice has work beside its phases on the network.
    template <typename Run>
    int enqueue(const Run &run, const Started &started, uint64_t slices, uint64_t windows,
                bool beside = false) const;

    const void *programs_;
    std::map<uint32_t, StatementPlan> plans_; // Of programs with statements.
    std::vector<tuccl_stage_step> steps_;     // Of all plans.
    tuccl_device_comm *device_ = nullptr;
    tuccl_staging staging_ = {};
    size_t scratch_bytes_ = 0;
    uint32_t most_lanes_ = 1;
    // Lanes of the ranks with this rank's place, in the order of nodes.
    std::vector<ncclComm_t> rails_;
    // Which the plugin of the rail obeys on all ranks; NULL: NCCL chooses along the rail.
    tuccl_request *request_ = nullptr;
    std::vector<ncclComm_t> round_lanes_; // Of all ranks.
};

} // namespace tuccl

#endif
