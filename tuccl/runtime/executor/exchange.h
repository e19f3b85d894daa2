// Rounds of greetings through a communicator that has just started.
#ifndef TUCCL_EXECUTOR_EXCHANGE_H
#define TUCCL_EXECUTOR_EXCHANGE_H

#include "agreement.h"
#include "executor.h"
#include "nccl_abi.h"
#include "roll_call.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <vector>

namespace tuccl {

class Exchange {
  public:
    // `cancelled` ends waiting, NULL without cancellation; so does a rank that has left `roll`,
    // NULL where the ranks have none.
    Exchange(ncclComm_t comm, uint32_t ranks, const std::atomic<bool> *cancelled,
             const RollCall *roll)
        : comm_(comm), ranks_(ranks), cancelled_(cancelled), roll_(roll) {
    }
    ~Exchange();
    Exchange(const Exchange &) = delete;
    Exchange &operator=(const Exchange &) = delete;

    // Starts on the current device. Returns NULL, or why this rank cannot take part.
    const char *open();

    // Collects all ranks' greetings, provided that all call it. Returns NULL, or the reason of a
    // failure: then a kernel on the device may wait for peers until NCCL aborts the communicator,
    // and a wait for the device (freeing) would wait for it.
    const char *round(const Greeting &mine, std::vector<Greeting> *all);

    // Waits until `has_ended` returns true. Returns NULL, or the reason of a failure, as a round.
    const char *wait_until(const std::function<bool()> &has_ended);

    // Notes that something else failed on this rank, with the same effect. Returns the reason.
    const char *break_off(const char *reason) {
        broken_ = true;
        return reason;
    }

    // Returns whether such a kernel may be running.
    bool is_broken() const {
        return broken_;
    }

    // Returns why to end waiting for other ranks, or NULL.
    const char *obstacle() const;

    // Frees a set-up's buffers after the last round. CUDA frees when no kernel runs on the device.
    // That may be a round of another communicator, whose ranks elsewhere are about to free, too,
    // and wait there for a round of this one.
    void keep(tuccl_exchange *buffers) {
        kept_.push_back(buffers);
    }

    // Ends waiting for other ranks after this time, from now on, for this reason.
    void wait_at_most(std::chrono::steady_clock::duration limit, const char *reason) {
        end_ = std::chrono::steady_clock::now() + limit;
        reason_of_end_ = reason;
    }

  private:
    static bool came_back(const Greeting &mine, const std::vector<Greeting> &all);
    const char *try_round(const Greeting &unnumbered, std::vector<Greeting> *all);
    const char *wait(const std::function<bool()> &has_ended);
    const char *obstacle_here() const;
    bool somebody_left() const {
        return roll_ != nullptr && roll_->somebody_left();
    }

    ncclComm_t comm_;
    uint32_t ranks_;
    const std::atomic<bool> *cancelled_;
    const RollCall *roll_;
    tuccl_exchange *device_ = nullptr;
    std::vector<tuccl_exchange *> kept_;
    bool broken_ = false;
    uint8_t rounds_ = 0;
    std::optional<std::chrono::steady_clock::time_point> end_;
    const char *reason_of_end_ = nullptr;
};

} // namespace tuccl

#endif
