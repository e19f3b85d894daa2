// What the job's user sees of the trials on a communicator: a line a minute at most, counters
// (metrics.h) and the log of verdicts (verdict_log.h).
#ifndef TUCCL_EXECUTOR_GUARD_WATCH_H
#define TUCCL_EXECUTOR_GUARD_WATCH_H

#include "guard_protocol.h"
#include "metrics.h"
#include "verdict_log.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tuccl {

// A choice of a trial, by its median.
struct TimedChoice {
    std::string name; // `table`, `nccl`, or what else may run.
    float us;         // 0 or less: not known.
};

// A trial that has ended.
struct Trial {
    GuardKey key;
    TrialVerdict verdict;
    std::vector<TimedChoice> choices; // The table's entry first, then NCCL's own choice.
    size_t ran;                       // Its index among them: what ran before ...
    size_t runs;                      // ... and what runs from now on.
    uint64_t call;                    // Of the communicator.
};

struct WatchTerms {
    uint32_t rank;
    uint64_t communicator; // Its number, which is the same on all ranks.
    uint32_t ranks;
    uint32_t nodes;
    uint32_t ranks_per_node; // 0 if nodes differ.
    uint32_t table;          // The sum of the table.
    Metrics *metrics;        // NULL if nothing is counted.
    VerdictLog *log;         // NULL if none is kept.
};

// Under the lock of whose trials it watches.
class GuardWatch {
  public:
    // `now_ns`: a clock; the lines are a minute of it apart.
    explicit GuardWatch(const WatchTerms &terms, int64_t (*now_ns)() = nullptr);
    // Says what has not been said yet.
    ~GuardWatch();
    GuardWatch(const GuardWatch &) = delete;
    GuardWatch &operator=(const GuardWatch &) = delete;

    // A call of a key, by the entry or by NCCL, or by neither; `place`: as in GuardProtocol::Run.
    void ran(const GuardKey &key, std::optional<bool> by_entry, std::optional<uint32_t> place);
    void waited();
    // `left_out`: how many sizes are NCCL's on this communicator now.
    void concluded(const Trial &trial, size_t left_out);

  private:
    void say_if_due();
    void say();

    const WatchTerms terms_;
    int64_t (*const now_ns_)();
    // What a call of a key saves, by the medians of the last trial.
    struct Saving {
        int64_t entry_ns = 0;         // The table's entry against NCCL's own choice.
        int64_t learned_ns = 0;       // The setting that runs, against the same, ...
        int64_t learned_entry_ns = 0; // ... and against the entry.
    };
    std::map<GuardKey, Saving> savings_;
    int64_t saved_against_nccl_ns_ = 0;
    int64_t saved_against_table_ns_ = 0;
    size_t left_out_ = 0;
    std::vector<Trial> unsaid_; // The last ones.
    uint64_t unsaid_out_ = 0;   // Of all.
    uint64_t unsaid_back_ = 0;
    uint64_t unsaid_learned_ = 0;
    int64_t due_ns_ = 0;
};

// Words for a key, as in the lines.
std::string describe(const GuardKey &key);

} // namespace tuccl

#endif
