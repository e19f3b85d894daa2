// The communicators that are split from the job's, one for each lane: those of this rank's rail,
// and those of all ranks for rounds of sends and receives.
#ifndef TUCCL_EXECUTOR_RAILS_H
#define TUCCL_EXECUTOR_RAILS_H

#include "decision.h"
#include "grid.h"
#include "nccl_abi.h"
#include "own_threads.h"
#include "real_nccl.h"
#include "requests.h"
#include "statement_plan.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace tuccl {

class Exchange;

// A call of NCCL that schedules across hosts make, as far as NCCL connects them differently: along
// a rail, and sends and receives of rounds.
struct RailCall {
    uint8_t operation; // kSend: sends and receives between `pairs`.
    // The requested configuration, as in tuccl_phase; 0: NCCL's own choice.
    uint8_t algorithm;
    uint8_t protocol;
    uint8_t nchannels;
    uint32_t lanes; // The first communicators of the rail or of all ranks, each of which makes it.
    // Of the larger buffer of the largest call, where NCCL's choice depends on it; else 0.
    uint64_t most_bytes;
    // Of all ranks alike: sender and receiver.
    RankPairs pairs = {};

    // Whether NCCL connects them alike, but for sizes, lanes and pairs.
    bool is_like(const RailCall &other) const {
        return operation == other.operation && algorithm == other.algorithm &&
               protocol == other.protocol && nchannels == other.nchannels;
    }
};

// Adds the calls of a rule, each kind of call once. `obeys`: whether NCCL takes the requested
// configurations; the same on all ranks.
void add_rail_calls(const Rule &rule, const void *programs, bool obeys,
                    std::vector<RailCall> *calls);

std::vector<RailCall> rail_calls(const Decision &decision, const void *programs, bool obeys);

// Memory between phases, of a device.
struct RailMemory {
    int device_number;
    void *scratch;
    uint64_t scratch_bytes;
};

class Rails {
  public:
    explicit Rails(const Grid &grid);
    // Aborts the communicators that nobody took.
    ~Rails();
    Rails(const Rails &) = delete;
    Rails &operator=(const Rails &) = delete;

    // Splits `comm` until there is what is needed. All ranks of `comm` call it alike. Returns NULL,
    // or the reason of a failure.
    const char *make(ncclComm_t comm, const NetworkNeed &need);
    bool has(const NetworkNeed &need) const;

    // Returns the calls that may connect more than those that were made before.
    std::vector<RailCall> not_connected(const std::vector<RailCall> &calls) const;
    // Makes these calls on this rank's own streams, so that NCCL connects what they need now and
    // not in a call of the job. All ranks call it alike, between rounds of `exchange`, whose
    // obstacles end waiting for other ranks. Returns NULL, or the reason of a failure, which aborts
    // the lanes.
    const char *connect(const std::vector<RailCall> &calls, const RailMemory &memory,
                        Exchange *exchange);
    // Whether a call of connect() never came back from NCCL: waiting for the device may never end.
    bool is_stuck() const {
        return is_stuck_;
    }

    // Lanes of the rail.
    size_t count() const;
    // Whether the lanes were taken.
    bool has_ended() const;
    std::vector<ncclComm_t> lanes() const;
    // Lanes of all ranks.
    std::vector<ncclComm_t> round_lanes() const;
    // Passes all communicators to the caller, who ends them; there will be no more. Nobody is
    // inside error() then.
    std::vector<ncclComm_t> take();
    // Takes all communicators, and aborts them until the result is destroyed.
    [[nodiscard]] Aborting start_abort();
    void abort() {
        (void)start_abort();
    }
    // An asynchronous error (ncclResult_t) of one of them, for threads that watch it; none while
    // its ranks prepare calls, who find errors themselves and agree on what follows.
    int error() const;
    void set_preparing(bool is_preparing) {
        is_preparing_.store(is_preparing);
    }

    // Whether the plugin of each lane obeys requests, on this rank.
    bool obey_requests() const;
    // For ranks that agree not to make them.
    void forgo_requests() {
        request_ = nullptr;
    }
    // NULL: NCCL chooses along the rail.
    tuccl_request *request() const {
        return request_;
    }

    // Device memory that NCCL took for the lanes.
    uint64_t nccl_bytes() const {
        return nccl_bytes_;
    }

  private:
    using Split = int (Rails::*)(ncclComm_t comm, ncclComm_t *lane) const;
    int split_rail(ncclComm_t comm, ncclComm_t *lane) const;
    int split_all(ncclComm_t comm, ncclComm_t *lane) const;
    // Adds a lane, unless all were taken meanwhile.
    const char *make_lane(ncclComm_t comm, Split split, std::vector<ncclComm_t> *lanes);
    std::vector<ncclComm_t> all() const; // Under the mutex.

    const Grid grid_;
    tuccl_request *request_;
    std::vector<RailCall> connected_;
    uint64_t nccl_bytes_ = 0;
    bool is_stuck_ = false;
    std::atomic<bool> is_preparing_{false};
    mutable std::mutex mutex_; // Protects the members below.
    std::vector<ncclComm_t> lanes_;
    std::vector<ncclComm_t> round_lanes_;
    bool taken_ = false;
};

// The first calls along a rail. NCCL connects an algorithm's ranks, and takes memory for that, in
// the first call that it runs by it: the call waits inside NCCL for the others. So the executor
// makes such calls itself before those of the job, small ones, and larger ones where NCCL's choice
// depends on the size. A thread makes them, because NCCL does not return from a call whose other
// ranks do not come, unless its communicator is aborted.
struct WarmUp {
    std::vector<ncclComm_t> lanes;
    std::vector<ncclComm_t> round_lanes;
    std::vector<RailCall> calls;
    tuccl_request *request;
    Grid grid;
    RailMemory memory;
};

struct WarmUpEnd {
    const char *fault; // NULL: all calls gave right results.
    bool is_stuck;     // A call is still inside NCCL, or a kernel on the device.
};

// All ranks make the same calls in the same order. Obstacles of `exchange` end waiting, and it
// keeps the buffers. `abort` aborts all communicators; it is called after a fault.
WarmUpEnd warm_up_rail(const WarmUp &warm_up, Exchange *exchange,
                       const std::function<void()> &abort);

} // namespace tuccl

#endif
