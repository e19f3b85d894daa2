// The protocol of the guard (TUCCL_GUARD): which calls of a communicator run an entry of the table,
// which NCCL's own choice, and when the ranks tell one another their times. No part of CUDA or
// NCCL.
//
// Each rank has a copy, and asks it at each of its calls that has an entry. It looks at nothing but
// these calls, which come in the same order on all ranks, and at conclusions of reports that all
// ranks have gathered: so all copies are in the same state at the same call. A conclusion holds
// from a call on that all know beforehand, never from when it has come.
#ifndef TUCCL_EXECUTOR_GUARD_PROTOCOL_H
#define TUCCL_EXECUTOR_GUARD_PROTOCOL_H

#include "check_rule.h"

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
};

enum class Conclusion : uint8_t {
    kNone, // A rank's times were not there: all stays as it was.
    kIn,
    kOut,
    kApart, // The ranks are not at the same call: the guard ends, and with it the table.
};

class GuardProtocol {
  public:
    explicit GuardProtocol(const GuardPace &pace = GuardPace()) : pace_(pace) {
    }

    enum class Phase : uint8_t { kRest, kTrial, kPause, kAsked };
    struct Key {
        Phase phase = Phase::kRest;
        bool is_out = false;
        uint32_t slot = 0;      // But at rest.
        uint32_t made = 0;      // Calls in this phase.
        uint32_t least = 0;     // It has so many at least, ...
        uint64_t until = 0;     // ... and lasts to this call of the communicator at least.
        uint32_t tries = 0;     // To report the trial that came to nothing.
        uint32_t next_rest = 0; // Calls of the next rest.
        uint64_t last = 0;      // Call of the communicator that was its last one.
    };

    // What is to be done at a call, in this order.
    struct Turn {
        Key *key = nullptr;   // NULL: the call is as the table has it, and nothing else is done.
        bool takes = false;   // Conclude the report of the slot, and call settle().
        bool reports = false; // Report the times of the slot.
        uint64_t call = 0;    // Of the communicator, counted alike on all ranks.
        uint32_t slot = 0;    // Of these two, and of `place`.
    };
    Turn next(const GuardKey &key);
    // `has_waited`: whether a rank had to wait for a conclusion before.
    void settle(const Turn &turn, Conclusion conclusion, bool has_waited);

    // How the call runs then.
    struct Run {
        bool by_entry;
        std::optional<uint32_t> place; // In the slot's times, in the order of CheckPairs.
    };
    Run run_of(const Turn &turn) const;

    // Whether a call that is not counted, of a group or captured, is left to NCCL.
    bool is_out(const GuardKey &key) const;

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

  private:
    // Calls of a trial that are not timed: of each way one, the first of which may connect ranks.
    static constexpr uint32_t kWarmUp = 2;

    void enter(Key *key, Phase phase, uint32_t least, uint32_t of_all);
    void enter_apart(Key *key, Phase phase);
    bool take_slot(Key *key);
    void end_idle_trial();
    bool forget_one();

    GuardPace pace_;
    uint64_t calls_ = 0;
    uint32_t slots_ = 0; // A bit for each that is taken.
    uint32_t doubled_ = 0;
    bool has_ended_ = false;
    std::map<GuardKey, Key> keys_;
};

// What a rank tells the others of a trial. As long as a greeting: NCCL gathers it as it gathered
// those at the start, so that it connects nothing in the job.
struct GuardReport {
    uint32_t magic;
    uint32_t operation;
    uint64_t bytes;
    uint64_t call;
    uint32_t is_ready;   // Whether all times are there.
    uint32_t has_waited; // Whether this rank had to wait for a conclusion since its last report.
    float times_us[2 * kCheckPairs];
    unsigned char unused[104];
};
static_assert(sizeof(GuardReport) == 256, "reports are as long as greetings");

GuardReport report_of(const GuardKey &key, uint64_t call);

struct Concluded {
    Conclusion conclusion = Conclusion::kNone;
    float entry_us = 0.0F; // Medians.
    float nccl_us = 0.0F;
    bool has_waited = false; // A rank had to.
};

// `mine`: what this rank reported. `is_out`: whether the entry is out so far.
Concluded conclude(const GuardReport &mine, const std::vector<GuardReport> &all, bool is_out);

} // namespace tuccl

#endif
