// The communicators that are split from the job's: those of this rank's rail, one for each lane,
// and one of all ranks for rounds of sends and receives.
#ifndef TUCCL_EXECUTOR_RAILS_H
#define TUCCL_EXECUTOR_RAILS_H

#include "aborting.h"
#include "grid.h"
#include "nccl_abi.h"
#include "network_need.h"
#include "rail_calls.h"
#include "rail_request.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace tuccl {

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
    // not in a call of the job. All ranks call it alike. `obstacle` returns why to end waiting for
    // other ranks, or NULL. Returns NULL, or the reason of a failure, which aborts the lanes.
    const char *connect(const std::vector<RailCall> &calls, const RailMemory &memory,
                        const std::function<const char *()> &obstacle);
    // Whether a call of connect() never came back from NCCL: waiting for the device may never end.
    bool is_stuck() const {
        return is_stuck_;
    }

    // Lanes.
    size_t count() const;
    // The communicator of all ranks; NULL without.
    ncclComm_t network() const;
    // Whether the lanes were taken.
    bool has_ended() const;
    std::vector<ncclComm_t> lanes() const;
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
    tuccl_rail_request *request() const {
        return request_;
    }

    // Device memory that NCCL took for the lanes.
    uint64_t nccl_bytes() const {
        return nccl_bytes_;
    }

  private:
    const char *make_lane(ncclComm_t comm);
    const char *make_network(ncclComm_t comm);
    // Keeps what was split off, unless all were taken meanwhile.
    const char *keep(int result, ncclComm_t made, bool is_lane);
    int split(ncclComm_t comm, ncclComm_t *lane) const;
    std::vector<ncclComm_t> all() const; // Under the mutex.

    const Grid grid_;
    tuccl_rail_request *request_;
    std::vector<RailCall> connected_;
    uint64_t nccl_bytes_ = 0;
    bool is_stuck_ = false;
    std::atomic<bool> is_preparing_{false};
    mutable std::mutex mutex_; // Protects the members below.
    std::vector<ncclComm_t> lanes_;
    ncclComm_t network_ = nullptr;
    bool taken_ = false;
};

} // namespace tuccl

#endif
