// TUCCL_GUARD: the table's entries against NCCL's own choice, timed in the job, by the protocol in
// guard_protocol.h.
//
// A trial takes calls of the job as they come: by the entry and by NCCL in turn, between events on
// the call's stream. The ranks gather their times by a call of NCCL's own on the communicator and
// in the stream of a call of the job's, so that it is ordered as that is.
#ifndef TUCCL_EXECUTOR_GUARD_H
#define TUCCL_EXECUTOR_GUARD_H

#include "../bundle_layout.h"
#include "communicator.h"
#include "exchange.h"
#include "guard_protocol.h"
#include "guard_watch.h"
#include "learned_file.h"
#include "requests.h"

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tuccl {

struct RetireTrials {
    void operator()(tuccl_trials *trials) const {
        tuccl_trials_retire(trials);
    }
};

// What the arms of a key are (guard_protocol.h).
struct Lineup {
    GuardArms arms;
    // Of each arm: the executor's rule; NULL if NCCL runs it.
    std::array<const Rule *, kMostArms> rules = {};
    // The word of NCCL's request, also for calls that the rule does not serve.
    std::array<uint32_t, kMostArms> words = {};
};

// Of a schedule of the table.
struct ScheduleName {
    std::string content_hash;
    std::string name;
};

// The same on all ranks, but for the rank.
struct GuardTerms {
    WatchTerms watch;
    uint32_t rank;
    uint32_t ranks;
    int device;
    bool learns;
    bool keeps_sums;                        // Sums that must not move are not NCCL's.
    tuccl_request *request;                 // Which the plugin obeys on all ranks; may be NULL.
    Decision rules;                         // Of the executor, with those to try.
    std::vector<tuccl_left_out> settings;   // Entries that the plugin answers; none without it.
    std::vector<tuccl_left_out> connecting; // Those of them for which NCCL may connect the ranks.
    // Settings that the table has for arms; of the first range that holds a size.
    std::vector<tuccl_runners_up_record> runners_up;
    std::vector<tuccl_left_out> left_out; // By the check at start.
    std::vector<ScheduleName> schedules;  // By number.
};

class Guard {
  public:
    using Trials = std::unique_ptr<tuccl_trials, RetireTrials>;

    Guard(GuardTerms terms, Trials trials);
    ~Guard();
    Guard(const Guard &) = delete;
    Guard &operator=(const Guard &) = delete;

    // Runs a call of the job's outside groups on this communicator; returns an ncclResult_t.
    int run(Communicator *communicator, const NcclCall &call);

    // As Communicator::decide(), by the conclusions so far: for a call that is not counted.
    bool decide(const Communicator &communicator, const NcclCall &call, tuccl_call *decided);

    // What it has learned so far; nothing unless this rank says it for all, or if it is in a call.
    std::optional<LearnedCommunicator> learned() const;

  private:
    std::optional<GuardKey> key_of(const NcclCall &call) const;
    Lineup lineup_of(const GuardKey &key) const;
    LearnedArm arm_of(const Lineup &lineup, const GuardProtocol::Key &state, uint32_t arm) const;
    Trial trial_of(const GuardKey &key, const GuardProtocol::Key &state, Conclusion conclusion,
                   uint32_t before, uint64_t call) const;
    static const Rule *decide_by_arm(const Communicator &communicator, const NcclCall &call,
                                     const Lineup &lineup, uint32_t arm, tuccl_call *decided);
    int put(Communicator *communicator, const NcclCall &call, const Lineup &lineup,
            std::optional<uint32_t> arm, bool *is_refused) const;
    int put_first(Communicator *communicator, const NcclCall &call, const Lineup &lineup,
                  uint32_t arm, uint32_t slot);
    int follow(Communicator *communicator, const NcclCall &call, const GuardKey &key,
               const Lineup &lineup, GuardProtocol::Run *run, uint32_t *slot);
    int report(Communicator *communicator, const NcclCall &call, const GuardKey &key,
               const GuardProtocol::Turn &turn);
    int take(const Communicator &communicator, const GuardKey &key,
             const GuardProtocol::Turn &turn);
    void publish() const;
    LearnedCommunicator learned_locked() const;

    const GuardTerms terms_;
    const Trials trials_;
    const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    mutable std::mutex mutex_; // Of what follows.
    GuardProtocol protocol_;
    GuardWatch watch_;
    std::vector<bool> is_untimed_;  // Slots whose trial has a time less.
    std::vector<uint32_t> refused_; // Of each slot, arms of its trial that NCCL does not run.
    struct First {
        std::chrono::steady_clock::duration choice = {};
        std::chrono::steady_clock::duration beyond = {}; // What other arms took more.
    };
    std::vector<First> first_; // Of each slot, the host's time in first calls of arms.
    uint64_t reports_ = 0;
    uint64_t waits_ = 0;
    bool has_waited_ = false; // Since the last report.
};

struct GuardWork {
    uint32_t rank;
    const Serving *serving;
    const tuccl_bundle *bundle;
    tuccl_request *request;
    bool learns;
    std::vector<tuccl_left_out> left_out;
    // Waits for this process's other ranks.
    std::function<void()> meet;
};

// Makes the guard of a communicator, if its shape has entries or it is to learn, and all ranks have
// what it takes. All ranks call it alike. Returns NULL with the guard, or without one and maybe an
// obstacle; or why this rank could not go on.
const char *make_guard(const GuardWork &work, Exchange *exchange, std::shared_ptr<Guard> *guard,
                       std::string *obstacle);

} // namespace tuccl

#endif
