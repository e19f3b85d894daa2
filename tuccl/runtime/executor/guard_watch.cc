#include "guard_watch.h"

#include "log.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>

namespace tuccl {

namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;
constexpr int64_t kInterval = 60 * kNsPerSecond;
constexpr size_t kMostSaid = 3; // Trials of a line.
constexpr size_t kMostKeys = 256;
constexpr size_t kTable = 0; // Places among the choices.
constexpr size_t kNccl = 1;

int64_t monotonic_ns() {
    timespec now = {};
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec * kNsPerSecond + now.tv_nsec;
}

std::string name_of(const Trial &trial, size_t choice) {
    return choice == kNccl ? "NCCL" : trial.choices[choice].name;
}

std::string describe(const Trial &trial) {
    const bool is_out = trial.verdict == TrialVerdict::kLeftOut;
    const bool is_tables = trial.runs == kTable;
    const std::string what = is_out      ? "left to NCCL, which is faster"
                             : is_tables ? "again as the table has it"
                                         : "by " + name_of(trial, trial.runs) + " from now on";
    const size_t other = is_out || is_tables ? kNccl : trial.ran;
    char text[200];
    std::snprintf(text, sizeof text, "%s %s (%.4g us in the job, %s %.4g us)",
                  describe(trial.key).c_str(), what.c_str(),
                  static_cast<double>(trial.choices[is_out ? kTable : trial.runs].us),
                  name_of(trial, other).c_str(), static_cast<double>(trial.choices[other].us));
    return text;
}

// A choice than another one; 0 if that is not known.
int64_t faster_ns(const Trial &trial, size_t choice, size_t other) {
    const float us = trial.choices[choice].us;
    const float other_us = trial.choices[other].us;
    return us > 0.0F && other_us > 0.0F ? std::llround(static_cast<double>(other_us - us) * 1000)
                                        : 0;
}

std::string seconds(int64_t ns) {
    char text[40];
    std::snprintf(text, sizeof text, "%.3g s",
                  static_cast<double>(ns) / static_cast<double>(kNsPerSecond));
    return text;
}

} // namespace

std::string describe(const GuardKey &key) {
    return tuccl_call_name(key.operation) + std::string(" of ") + std::to_string(key.bytes) +
           " bytes";
}

GuardWatch::GuardWatch(const WatchTerms &terms, int64_t (*now_ns)())
    : terms_(terms), now_ns_(now_ns != nullptr ? now_ns : monotonic_ns) {
    if (terms_.metrics != nullptr)
        terms_.metrics->guards();
}

GuardWatch::~GuardWatch() {
    say();
    if (terms_.metrics != nullptr)
        terms_.metrics->left_out(-static_cast<int64_t>(left_out_));
}

void GuardWatch::ran(const GuardKey &key, std::optional<bool> by_entry,
                     std::optional<uint32_t> place) {
    if (place == 0U && terms_.metrics != nullptr)
        terms_.metrics->began_trial();
    // A trial may try another setting than the one that runs.
    const auto found = by_entry || !place ? savings_.find(key) : savings_.end();
    if (found != savings_.end()) {
        const Saving &each = found->second;
        const int64_t against_nccl_ns = !by_entry ? each.learned_ns : *by_entry ? each.entry_ns : 0;
        const int64_t against_table_ns = !by_entry   ? each.learned_entry_ns
                                         : *by_entry ? 0
                                                     : -each.entry_ns;
        saved_against_nccl_ns_ += against_nccl_ns;
        saved_against_table_ns_ += against_table_ns;
        if (terms_.metrics != nullptr)
            terms_.metrics->saved(against_nccl_ns, against_table_ns);
    }
    say_if_due();
}

void GuardWatch::waited() {
    if (terms_.metrics != nullptr)
        terms_.metrics->waited();
}

void GuardWatch::concluded(const Trial &trial, size_t left_out) {
    if (terms_.metrics != nullptr) {
        terms_.metrics->concluded(trial.verdict);
        terms_.metrics->left_out(static_cast<int64_t>(left_out) - static_cast<int64_t>(left_out_));
    }
    left_out_ = left_out;
    if (terms_.log != nullptr && terms_.rank == 0)
        terms_.log->add(terms_, trial);
    if (trial.verdict == TrialVerdict::kApart) {
        savings_.clear();
        if (terms_.rank == 0)
            log_warning("guard: ranks call %s at different places, all calls of the communicator "
                        "are NCCL's from now on",
                        describe(trial.key).c_str());
        return;
    }
    if (trial.verdict == TrialVerdict::kNoTimes)
        return;
    if (terms_.rank != 0 && terms_.metrics == nullptr)
        return;
    if (savings_.size() >= kMostKeys && savings_.count(trial.key) == 0)
        savings_.erase(savings_.begin());
    Saving &saving = savings_[trial.key] = {faster_ns(trial, kTable, kNccl), 0, 0};
    if (trial.runs > kNccl) {
        const bool has_entry = trial.choices[kTable].us > 0.0F;
        saving.learned_ns = faster_ns(trial, trial.runs, kNccl);
        saving.learned_entry_ns =
            has_entry ? faster_ns(trial, trial.runs, kTable) : saving.learned_ns;
    }
    if (terms_.rank != 0 || trial.verdict == TrialVerdict::kStays)
        return;
    ++(trial.verdict == TrialVerdict::kLeftOut     ? unsaid_out_
       : trial.verdict == TrialVerdict::kTakenBack ? unsaid_back_
                                                   : unsaid_learned_);
    if (unsaid_.size() == kMostSaid)
        unsaid_.erase(unsaid_.begin());
    unsaid_.push_back(trial);
    say_if_due();
}

void GuardWatch::say_if_due() {
    if (unsaid_.empty())
        return;
    const int64_t now_ns = now_ns_();
    if (now_ns < due_ns_)
        return;
    due_ns_ = now_ns + kInterval;
    say();
}

// Nothing is lost: the line counts what it has no place for.
void GuardWatch::say() {
    const uint64_t all = unsaid_out_ + unsaid_back_ + unsaid_learned_;
    if (all == 0)
        return;
    const bool has_learned_only = all == unsaid_learned_;
    std::string text = has_learned_only ? "learned: " : "guard: ";
    if (all > 1)
        text += std::to_string(unsaid_out_) + " sizes left to NCCL, " +
                std::to_string(unsaid_back_) + " taken back, " + std::to_string(unsaid_learned_) +
                " by another setting, since the last line" +
                (all > unsaid_.size() ? "; the last " + std::to_string(unsaid_.size()) : "") + ": ";
    for (size_t i = 0; i < unsaid_.size(); i++)
        text += (i > 0 ? ", " : "") + describe(unsaid_[i]);
    // A millisecond is worth words.
    constexpr int64_t kLeast = kNsPerSecond / 1000;
    if (std::abs(saved_against_nccl_ns_) >= kLeast || std::abs(saved_against_table_ns_) >= kLeast)
        text += "; saved so far, by the trials' medians: " + seconds(saved_against_nccl_ns_) +
                " against NCCL's own choice, " + seconds(saved_against_table_ns_) +
                " against the table alone";
    (has_learned_only ? log_info : log_warning)("%s", text.c_str());
    unsaid_.clear();
    unsaid_out_ = unsaid_back_ = unsaid_learned_ = 0;
}

} // namespace tuccl
