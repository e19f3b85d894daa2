#include "metrics.h"

#include "../request.h"
#include "byte_counts.h"
#include "log.h"
#include "metrics_file.h"
#include "secrets.h"

#include <chrono>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace tuccl {

namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;
constexpr int64_t kInterval = 60 * kNsPerSecond;

constexpr const char *kPathNames[kPaths] = {"schedule", "setting", "learned", "nccl"};
constexpr const char *kOutcomeNames[kOutcomes] = {
    "served", "nothing_in_table", "no_table", "one_rank", "rank_missing", "refused", "failed"};
constexpr const char *kVerdictNames[kVerdicts] = {"stays",    "left_out", "taken_back",
                                                  "no_times", "apart",    "learned"};

// A few nanoseconds; exact to some milliseconds.
int64_t monotonic_ns() {
    timespec now = {};
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec * kNsPerSecond + now.tv_nsec;
}

// The job's rank as its launcher names it.
std::string rank_here() {
    for (const char *name :
         {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
        const char *set = std::getenv(name);
        constexpr size_t kMostDigits = 9;
        if (set != nullptr && set[0] != '\0' && std::strlen(set) <= kMostDigits &&
            std::strspn(set, "0123456789") == std::strlen(set))
            return set;
    }
    return {};
}

std::string labels_of(const std::string &process, const std::string &rank) {
    return "process=\"" + process + "\"" + (rank.empty() ? "" : ",rank=\"" + rank + "\"");
}

void append(std::string *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void append(std::string *text, const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    *text += line;
}

// node_exporter takes files of several releases at once only if these lines are the same in all.
void head(std::string *text, const char *name, const char *type, const char *help) {
    append(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

Metrics *make_metrics() {
    const char *folder = std::getenv("TUCCL_METRICS");
    const char *control = std::getenv("TUCCL_CONTROL");
    if (folder == nullptr || folder[0] == '\0' || (control != nullptr && control[0] != '\0'))
        return nullptr;
    struct stat status;
    if (stat(folder, &status) != 0 || !S_ISDIR(status.st_mode)) {
        log_warning("TUCCL_METRICS=%s is not a folder: nothing is counted", folder);
        return nullptr;
    }
    char process[40];
    std::snprintf(process, sizeof process, "%d-%08" PRIx32, static_cast<int>(getpid()),
                  static_cast<uint32_t>(random_number()));
    char *whole = realpath(folder, nullptr); // The job may change its folder.
    auto *made = new Metrics(whole != nullptr ? whole : folder, process, rank_here());
    std::free(whole);
    (void)std::atexit([] { metrics()->write_last(); });
    return made;
}

// What a thread has handed to NCCL in its group, and what the plugin has answered meanwhile.
struct Group {
    std::array<uint64_t, TUCCL_CALL_KINDS> calls = {};
    std::array<uint64_t, TUCCL_CALL_KINDS> bytes = {};
    bool has_calls = false;
};
thread_local Group in_group;
// A bit for each operation: from the table; by what the job learned.
thread_local uint32_t answered = 0;
thread_local uint32_t answered_as_learned = 0;

void forget_answers() {
    answered = answered_as_learned = 0;
}

Path path_of(uint32_t kind) {
    if ((answered_as_learned >> kind & 1) != 0)
        return Path::kLearned;
    return (answered >> kind & 1) != 0 ? Path::kSetting : Path::kNccl;
}

} // namespace

const char *verdict_name(TrialVerdict verdict) {
    return kVerdictNames[static_cast<size_t>(verdict)];
}

uint64_t buffer_bytes(int type, uint64_t count) {
    // Later types have 8 bits.
    return count * (type >= 0 && type < TUCCL_TYPES ? type_bytes(static_cast<uint32_t>(type)) : 1);
}

Metrics::Metrics(std::string folder, std::string process, std::string rank)
    : folder_(std::move(folder)), process_(std::move(process)), labels_(labels_of(process_, rank)),
      number_(getpid()) {
}

std::string Metrics::text(int64_t now_s, bool is_running) const {
    std::string text;
    // `label`: a further one, with the comma before it.
    const auto line = [&](const char *name, const std::string &label, double number) {
        append(&text, "%s{%s%s} %.15g\n", name, labels_.c_str(), label.c_str(), number);
    };
    for (const bool of_bytes : {false, true}) {
        const char *name = of_bytes ? "tuccl_bytes_total" : "tuccl_calls_total";
        head(&text, name, "counter",
             of_bytes
                 ? "Bytes of a rank's buffer in these calls, as NCCL counts them."
                 : "Calls of NCCL that move data, by what ran them: a schedule of the table, "
                   "NCCL by a setting of the table or by one that the job learned, NCCL by its own "
                   "choice.");
        for (uint32_t kind = 0; kind < TUCCL_CALL_KINDS; kind++)
            for (size_t path = 0; path < kPaths; path++) {
                uint64_t calls = 0;
                uint64_t bytes = 0;
                for (const Part &part : parts_) {
                    calls += part.of[kind][path].calls.load(std::memory_order_relaxed);
                    bytes += part.of[kind][path].bytes.load(std::memory_order_relaxed);
                }
                if (calls > 0)
                    append(&text, "%s{%s,operation=\"%s\",path=\"%s\"} %" PRIu64 "\n", name,
                           labels_.c_str(), tuccl_call_name(kind), kPathNames[path],
                           of_bytes ? bytes : calls);
            }
    }
    head(&text, "tuccl_communicators_total", "counter",
         "Communicators that have started, by what they are for the executor.");
    for (size_t i = 0; i < kOutcomes; i++)
        append(&text, "tuccl_communicators_total{%s,outcome=\"%s\"} %" PRIu64 "\n", labels_.c_str(),
               kOutcomeNames[i], outcomes_[i].load(std::memory_order_relaxed));
    if (has_guard_.load(std::memory_order_relaxed)) {
        head(&text, "tuccl_guard_trials_total", "counter", "Trials that the guard has begun.");
        line("tuccl_guard_trials_total", "", static_cast<double>(trials_.load()));
        head(&text, "tuccl_guard_conclusions_total", "counter",
             "Trials of the guard that have ended, by what followed.");
        for (size_t i = 0; i < kVerdicts; i++)
            append(&text, "tuccl_guard_conclusions_total{%s,verdict=\"%s\"} %" PRIu64 "\n",
                   labels_.c_str(), kVerdictNames[i], verdicts_[i].load());
        head(&text, "tuccl_guard_waits_total", "counter",
             "Calls that waited for the conclusion of a trial.");
        line("tuccl_guard_waits_total", "", static_cast<double>(waits_.load()));
        head(&text, "tuccl_guard_sizes_left_out", "gauge",
             "Sizes that the guard leaves to NCCL now, of all communicators.");
        line("tuccl_guard_sizes_left_out", "", static_cast<double>(left_out_.load()));
        head(&text, "tuccl_guard_saved_seconds", "gauge",
             "Time that the job has saved so far by the medians of trials, against NCCL's own "
             "choice or the table's entry in all calls.");
        const double ns = static_cast<double>(kNsPerSecond);
        line("tuccl_guard_saved_seconds", ",against=\"nccl\"",
             static_cast<double>(against_nccl_ns_.load()) / ns);
        line("tuccl_guard_saved_seconds", ",against=\"table\"",
             static_cast<double>(against_table_ns_.load()) / ns);
    }
    head(&text, "tuccl_process_running", "gauge",
         "1 until the process ends; a process that was killed leaves 1.");
    line("tuccl_process_running", "", is_running ? 1 : 0);
    head(&text, "tuccl_written_timestamp_seconds", "gauge", "When these figures were written.");
    line("tuccl_written_timestamp_seconds", "", static_cast<double>(now_s));
    return text;
}

void Metrics::write_if_due() {
    const int64_t now_ns = monotonic_ns();
    int64_t due_ns = due_ns_.load(std::memory_order_relaxed);
    if (now_ns >= due_ns && due_ns_.compare_exchange_strong(due_ns, now_ns + kInterval))
        write(true);
}

void Metrics::write_last() {
    write(false);
}

void Metrics::write(bool is_running) {
    if (getpid() != number_)
        return;
    // At the end another thread may be writing; it does so in microseconds, if the disk is well.
    for (int tries = 0; is_writing_.test_and_set(std::memory_order_acquire); tries++) {
        if (is_running || tries == 100)
            return;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const std::string fault =
        replace_metrics(folder_, process_, text(std::time(nullptr), is_running), &file_);
    if (!fault.empty() && !std::exchange(has_failed_, true))
        log_warning("no figures are written into TUCCL_METRICS=%s: %s", folder_.c_str(),
                    fault.c_str());
    is_writing_.clear(std::memory_order_release);
}

Metrics *metrics() {
    static Metrics *const only = make_metrics();
    return only;
}

int count_handed_over(const NcclCall &call, bool is_in_group, int (*pass)(const NcclCall &)) {
    Metrics *const here = metrics();
    if (here == nullptr)
        return pass(call);
    if (!is_in_group)
        forget_answers();
    const int result = pass(call);
    if (result != kNcclSuccess && result != kNcclInProgress)
        return result;
    const uint64_t bytes = buffer_bytes(call.type, call.count);
    if (!is_in_group) {
        here->ran(call.kind, path_of(call.kind), 1, bytes);
        return result;
    }
    if (!std::exchange(in_group.has_calls, true))
        forget_answers();
    in_group.calls[call.kind]++;
    in_group.bytes[call.kind] += bytes;
    return result;
}

void count_group(bool has_run) {
    if (!in_group.has_calls)
        return;
    for (uint32_t kind = 0; has_run && kind < TUCCL_CALL_KINDS; kind++)
        if (in_group.calls[kind] > 0)
            metrics()->ran(kind, path_of(kind), in_group.calls[kind], in_group.bytes[kind]);
    in_group = {};
    forget_answers();
}

} // namespace tuccl

extern "C" __attribute__((visibility("default"))) void tuccl_executor_answered(uint32_t operation) {
    const uint32_t kind = operation & ~uint32_t{TUCCL_ANSWERED_LEARNED};
    if (kind < TUCCL_CALL_KINDS)
        (kind == operation ? tuccl::answered : tuccl::answered_as_learned) |= 1U << kind;
}
