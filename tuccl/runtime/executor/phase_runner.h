// Runs calls across hosts: kernels inside the node, NCCL's collectives along the rail.
//
// Phases inside the node run on the call's stream. Where a call has several slices, its rail phases
// run on streams of the communicator's own, one for each lane, so that the network carries slices
// while kernels work on the next; events keep the phases of a slice in order. All ranks enqueue the
// same phases in the same order, and every phase waits only for phases enqueued before it. So ranks
// cannot wait for each other in a circle, even if a device runs all streams one after the other.
#ifndef TUCCL_EXECUTOR_PHASE_RUNNER_H
#define TUCCL_EXECUTOR_PHASE_RUNNER_H

#include "nccl_call.h"
#include "phase_plan.h"
#include "rails.h"

#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

namespace tuccl {

class PhaseRunner {
  public:
    // `device`: of the ranks of this node, prepared for phases with `scratch_bytes` and two streams
    // for each of `most_lanes`.
    PhaseRunner(tuccl_device_comm *device, uint32_t most_lanes, size_t scratch_bytes,
                const void *programs)
        : device_(device), most_lanes_(most_lanes), scratch_bytes_(scratch_bytes),
          programs_(programs) {
    }

    // `rails`: communicators of the ranks with this rank's place, in the order of nodes. `request`:
    // which the plugin of the rail obeys on all ranks; NULL: NCCL chooses along the rail. Not
    // beside a call.
    void use(std::vector<ncclComm_t> rails, tuccl_rail_request *request) {
        rails_ = std::move(rails);
        request_ = request;
    }
    RailMemory memory(int device_number) const;

    // Returns whether it can run a call; the same on every rank.
    bool supports(const tuccl_call &call) const;

    // Enqueues a call; not inside a group of NCCL's. `gave_up` may be set by another thread, which
    // then ends the rail: it is used no more. Returns an ncclResult_t.
    int run(const tuccl_call &call, ncclStream stream, const std::atomic<bool> &gave_up) const;

  private:
    class Run;

    tuccl_device_comm *device_;
    uint32_t most_lanes_;
    size_t scratch_bytes_;
    const void *programs_;
    std::vector<ncclComm_t> rails_;
    tuccl_rail_request *request_ = nullptr;
};

} // namespace tuccl

#endif
