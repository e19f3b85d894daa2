// TUCCL_METRICS=FOLDER: what this process's calls and communicators came to, counted, and a file
// with the counts in FOLDER for Prometheus's node_exporter (its textfile collector).
//
// There is no thread for it: a call of the job writes the file, if the last time is a minute ago,
// and so does the end of the process. Counting takes no lock, and nothing is done at all if the
// variable is not set.
#ifndef TUCCL_EXECUTOR_METRICS_H
#define TUCCL_EXECUTOR_METRICS_H

#include "real_nccl.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace tuccl {

// By whom a call ran, in the order of the words in the file.
enum class Path : uint8_t { kSchedule, kSetting, kLearned, kNccl };
constexpr size_t kPaths = 4;

// What a communicator that NCCL has started is for the executor.
enum class Outcome : uint8_t {
    kServed,
    kNothingInTable,
    kNoTable,
    kOneRank,
    kRankMissing, // A rank lacks the executor, or cannot be seen.
    kRefused,     // A warning (NCCL_DEBUG=WARN) has the reason.
    kFailed,
};
constexpr size_t kOutcomes = 7;

// What a trial of the guard came to.
enum class TrialVerdict : uint8_t {
    kStays,     // What ran before runs on.
    kLeftOut,   // NCCL's own choice runs from now on.
    kTakenBack, // The table's entry does again.
    kNoTimes,   // A rank's times were not there: all stays as it was.
    kApart,     // Ranks are at different calls: all calls are NCCL's.
    kLearned,   // Another setting of NCCL's runs from now on.
};
constexpr size_t kVerdicts = 6;
const char *verdict_name(TrialVerdict verdict);

class Metrics {
  public:
    // `folder`: of the file; `process`: unique on this host; `rank`: of the job, empty if unknown.
    Metrics(std::string folder, std::string process, std::string rank);
    Metrics(const Metrics &) = delete;
    Metrics &operator=(const Metrics &) = delete;

    void ran(uint32_t kind, Path path, uint64_t calls, uint64_t bytes) {
        Counted &counted = parts_[part_here()].of[kind][static_cast<size_t>(path)];
        counted.calls.fetch_add(calls, std::memory_order_relaxed);
        counted.bytes.fetch_add(bytes, std::memory_order_relaxed);
        write_if_due();
    }
    void started(Outcome outcome) {
        count(&outcomes_[static_cast<size_t>(outcome)]);
        write_if_due();
    }
    void guards() {
        has_guard_.store(true, std::memory_order_relaxed);
    }
    void began_trial() {
        count(&trials_);
    }
    void concluded(TrialVerdict verdict) {
        count(&verdicts_[static_cast<size_t>(verdict)]);
    }
    void waited() {
        count(&waits_);
    }
    void left_out(int64_t more) {
        left_out_.fetch_add(more, std::memory_order_relaxed);
    }
    // Against NCCL's own choice in all calls, and against the table's entry in all calls. Whole
    // nanoseconds, so that sums need no lock.
    void saved(int64_t against_nccl_ns, int64_t against_table_ns) {
        against_nccl_ns_.fetch_add(against_nccl_ns, std::memory_order_relaxed);
        against_table_ns_.fetch_add(against_table_ns, std::memory_order_relaxed);
    }

    // The text of the file. `now_s`: seconds since 1970.
    std::string text(int64_t now_s, bool is_running) const;
    void write_if_due();
    // At the end of the process.
    void write_last();

  private:
    struct Counted {
        std::atomic<uint64_t> calls{0};
        std::atomic<uint64_t> bytes{0};
    };
    using Counter = std::atomic<uint64_t>;
    static void count(Counter *counter) {
        counter->fetch_add(1, std::memory_order_relaxed);
    }
    // Threads that call at the same time count apart, as long as there are few.
    static constexpr uint32_t kParts = 16;
    static uint32_t part_here() {
        static std::atomic<uint32_t> threads{0};
        thread_local const uint32_t mine = threads.fetch_add(1, std::memory_order_relaxed) % kParts;
        return mine;
    }
    struct alignas(64) Part {
        std::array<std::array<Counted, kPaths>, TUCCL_CALL_KINDS> of;
    };
    void write(bool is_running);

    const std::string folder_;
    const std::string process_;
    const std::string labels_; // Of every line.
    const int number_;         // Of the process: a child that was forked writes nothing.
    std::atomic<int64_t> due_ns_{0};
    std::atomic_flag is_writing_ = ATOMIC_FLAG_INIT;
    int file_ = -1; // The last one, which this process locks; under the flag.
    bool has_failed_ = false;
    std::array<Part, kParts> parts_;
    std::array<Counter, kOutcomes> outcomes_ = {};
    std::array<Counter, kVerdicts> verdicts_ = {};
    Counter trials_{0};
    Counter waits_{0};
    std::atomic<bool> has_guard_{false};
    std::atomic<int64_t> left_out_{0};
    std::atomic<int64_t> against_nccl_ns_{0};
    std::atomic<int64_t> against_table_ns_{0};
};

// Of this process; NULL if TUCCL_METRICS is not set, or names no folder, or if it measures.
Metrics *metrics();

// Hands a call to NCCL by `pass`, and counts it: as the table's setting if the tuner plugin
// answered meanwhile. In a group NCCL asks at the end.
int count_handed_over(const NcclCall &call, bool is_in_group, int (*pass)(const NcclCall &));
// The calls of the thread's group, when NCCL has ended it, or without having run it.
void count_group(bool has_run);

// Bytes of a rank's buffer as the call counts them.
uint64_t buffer_bytes(int type, uint64_t count);

} // namespace tuccl

// The plugin's call, in the job's thread: request.h.
extern "C" void tuccl_executor_answered(uint32_t operation);

#endif
