// The protocol of the guard (TUCCL_GUARD) and of learning (TUCCL_LEARN): which calls of a
// communicator run an entry of the table, which NCCL's own choice, which another setting, and when
// the ranks tell one another their times. No part of CUDA or NCCL.
//
// Each rank has a copy, and asks it at each of its calls that has an entry. It looks at nothing but
// these calls, which come in the same order on all ranks, and at conclusions of reports that all
// ranks have gathered: so all copies are in the same state at the same call. A conclusion holds
// from a call on that all know beforehand, never from when it has come.
#ifndef TUCCL_EXECUTOR_GUARD_PROTOCOL_H
#define TUCCL_EXECUTOR_GUARD_PROTOCOL_H

#include "check_rule.h"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tuccl {

// Calls that are compared with one another: of an operation and of a size, as tables count it.
struct GuardKey {
    uint32_t operation;
    uint64_t bytes;

    bool operator<(const GuardKey &other) const {
        return operation != other.operation ? operation < other.operation : bytes < other.bytes;
    }
    bool operator==(const GuardKey &other) const {
        return operation == other.operation && bytes == other.bytes;
    }
};

// What calls of a key may run by: arm 0 is what the table says, an entry or, without one, NCCL's
// own choice. The same on all ranks.
constexpr uint32_t kMostArms = 9;
struct GuardArms {
    uint32_t count = 2;
    uint32_t nccl = 1;     // The arm that is NCCL's own choice.
    uint32_t connects = 0; // A bit for each arm for which NCCL may have to connect the ranks.
};
using GuardTrial = std::vector<uint8_t>; // Arms that are timed in turn.

// The arm of a call of a trial of so many arms: there and back, so that a drift harms none. For two
// as CheckPairs has it.
constexpr uint32_t place_in_trial(uint32_t call, uint32_t arms) {
    return call / arms % 2 == 0 ? call % arms : arms - 1 - call % arms;
}

// In calls. A trial ends, the ranks report, and the conclusion holds, each so many calls after the
// other that the device has done by then what the host had asked of it before: as many of the key,
// and as many of the communicator. If a rank's times were not there, or a rank had to wait, all
// distances are doubled.
struct GuardPace {
    uint32_t familiar = 4;        // Of the key, before its first trial.
    uint32_t pairs = kCheckPairs; // That are timed in a trial.
    uint32_t apart = 8;
    uint32_t apart_of_all = 128;
    uint32_t most_doubled = 4; // Times that they are.
    uint32_t tries = 4;        // To report a trial.
    // Of the key, to the next trial; twice as many after each.
    uint32_t first_rest = 512;
    uint32_t concluded_rest = 4096; // At least, if something was concluded.
    uint32_t most_rest = 16384;
    uint32_t slots = 32;  // Trials at the same time.
    uint32_t idle = 1024; // Of the communicator: a trial that waits so long for a call gives way.
    uint32_t keys = 256;  // That are known; the one that was not called for longest gives way.
    bool learns = false;  // Whether arms race, instead of arm 0 against NCCL's own choice alone.
    uint32_t heat = 3;    // Arms that race at the same time with the choice, in their order.
    double share = 0.02;  // Of the job's time that calls by slower arms may take.
    double connect_us = 100e3; // That connecting the ranks is assumed to take, once.
    float drift = 1.25F;       // What a choice is slower by than it was when all arms race again.
};

enum class Conclusion : uint8_t {
    kNone, // A rank's times were not there: all stays as it was.
    kTimed,
    kApart, // The ranks are not at the same call: the guard ends, and with it the table.
};

// What the ranks' reports of a trial say, the same on all of them. Times are in the order of its
// arms, in us.
struct Concluded {
    Conclusion conclusion = Conclusion::kNone;
    std::array<float, kMostArms> us = {}; // Medians.
    bool first_loses = false;             // Of two: slower than the second beyond doubt.
    bool first_stays = false;             // Of two: as fast as the second.
    float slower_us = 0.0F;               // That its calls took more than those of the first arm.
    uint32_t refused = 0;                 // A bit for each arm that NCCL does not run.
    uint64_t elapsed_us = 0;              // Of the job: that of the rank that has the least, ...
    uint64_t call = 0;                    // ... at this call of the communicator.
    bool has_waited = false;              // A rank had to.
};

class GuardProtocol {
  public:
    explicit GuardProtocol(const GuardPace &pace = GuardPace()) : pace_(pace) {
    }

    enum class Phase : uint8_t { kRest, kTrial, kPause, kAsked };
    struct Key {
        Phase phase = Phase::kRest;
        uint32_t slot = 0;      // But at rest.
        uint32_t made = 0;      // Calls in this phase.
        uint32_t least = 0;     // It has so many at least, ...
        uint64_t until = 0;     // ... and lasts to this call of the communicator at least.
        uint32_t tries = 0;     // To report the trial that came to nothing.
        uint32_t next_rest = 0; // Calls of the next rest.
        uint64_t last = 0;      // Call of the communicator that was its last one.
        uint64_t calls = 0;
        GuardArms arms;
        uint8_t choice = 0; // The arm of calls that are in no trial.
        GuardTrial trial;   // The arms of the present trial or the last one.
        // What follows is of a protocol that learns.
        GuardTrial field;        // The arms that still race, the choice first; empty: none do.
        uint8_t next = 0;        // Arms from this one on have not raced.
        uint32_t refused = 0;    // As in Concluded.
        uint32_t races = 0;      // Heats that have ended.
        double reserved_us = 0;  // What the present trial may take more.
        float settled_us = 0.0F; // The choice's time when the last race ended.
        std::array<float, kMostArms> us = {}; // Of each arm in its last trial; 0: none.

        bool is_out() const { // Whether NCCL's own choice runs although the table says otherwise.
            return choice == arms.nccl && choice != 0;
        }
    };

    // What is to be done at a call, in this order.
    struct Turn {
        Key *key = nullptr;   // NULL: the call is as the table has it, and nothing else is done.
        bool takes = false;   // Conclude the report of the slot, and call settle().
        bool reports = false; // Report the times of the slot.
        uint64_t call = 0;    // Of the communicator, counted alike on all ranks.
        uint32_t slot = 0;    // Of these two, and of `place`.
        bool begins = false;  // A trial, with this call.
    };
    Turn next(const GuardKey &key, const GuardArms &arms = {});
    void settle(const Turn &turn, const Concluded &concluded);

    // How the call runs then.
    struct Run {
        std::optional<uint32_t> arm;   // Nothing: NCCL's own choice, whatever its arm.
        std::optional<uint32_t> place; // In the slot's times.
        bool is_first = false;         // Of its arm in a trial: it may connect the ranks.
    };
    Run run_of(const Turn &turn) const;

    // The arm of a call that is not counted, of a group or captured; nothing as in Run.
    std::optional<uint32_t> choice_of(const GuardKey &key) const;

    // Calls of a trial that are timed.
    uint32_t timed_calls(const GuardTrial &trial) const;

    bool has_ended() const {
        return has_ended_;
    }
    const std::map<GuardKey, Key> &keys() const {
        return keys_;
    }
    uint64_t calls() const {
        return calls_;
    }
    uint32_t doubled() const {
        return doubled_;
    }
    // Of a protocol that learns: what calls by slower arms took more, and the job's time so far.
    double slower_us() const {
        return slower_us_;
    }
    uint64_t elapsed_us() const {
        return elapsed_us_;
    }
    uint64_t elapsed_call() const {
        return elapsed_call_;
    }

  private:
    void enter(Key *key, Phase phase, uint32_t least, uint32_t of_all);
    void enter_apart(Key *key, Phase phase);
    bool take_slot(Key *key);
    void end_idle_trial();
    bool forget_one();
    bool may_race(const Key &key, uint8_t arm) const;
    void choose_field(Key *key) const;
    GuardTrial next_race(Key *key) const;
    void choose_trial(Key *key);
    bool waits_for_share(Key *key);
    double price_of(const Key &key, const GuardTrial &trial) const;
    bool can_afford(double price_us) const;
    void settle_pair(Key *key, const Concluded &concluded);
    uint32_t settle_race(Key *key, const Concluded &concluded);
    uint32_t rest_after(Key *key, uint32_t least);

    GuardPace pace_;
    uint64_t calls_ = 0;
    uint32_t slots_ = 0; // A bit for each that is taken.
    uint32_t doubled_ = 0;
    bool has_ended_ = false;
    double slower_us_ = 0.0;
    double reserved_us_ = 0.0; // Of all keys.
    uint64_t elapsed_us_ = 0;
    uint64_t elapsed_call_ = 0; // At which it had elapsed.
    std::map<GuardKey, Key> keys_;
};

// What a rank tells the others of a trial. As long as a greeting: NCCL gathers it as it gathered
// those at the start, so that it connects nothing in the job.
struct GuardReport {
    uint32_t magic;
    uint32_t operation;
    uint64_t bytes;
    uint64_t call;
    uint64_t trial;      // Its arms, four bits each and 1 more.
    uint64_t elapsed_us; // Since this rank's guard began.
    uint32_t refused;    // As in Concluded.
    uint32_t is_ready;   // Whether all times are there.
    uint32_t has_waited; // Whether this rank had to wait for a conclusion since its last report.
    float times_us[2 * kCheckPairs];
    float first_us; // That this rank's host took for first calls of arms, beyond the choice's.
    unsigned char unused[80];
};
static_assert(sizeof(GuardReport) == 256, "reports are as long as greetings");

GuardReport report_of(const GuardKey &key, const GuardTrial &trial, uint64_t call);

// `mine`: what this rank reported of so many timed calls of a trial of so many arms.
Concluded conclude(const GuardReport &mine, const std::vector<GuardReport> &all, uint32_t arms,
                   uint32_t calls);

} // namespace tuccl

#endif
