#include "verdict_log.h"

#include "guard_watch.h"
#include "log.h"
#include "secrets.h"
#include "whole_file.h"

extern "C" {
#include "collectives.h"
}

#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace tuccl {

namespace {

// Some 10,000 verdicts each, of two files.
constexpr uint64_t kMostBytes = 4 << 20;

std::string host_here() {
    std::string host = host_name();
    host = host.substr(0, host.find('.'));
    // As part of a name and of JSON.
    for (char &letter : host)
        if (!(letter >= 'a' && letter <= 'z') && !(letter >= 'A' && letter <= 'Z') &&
            !(letter >= '0' && letter <= '9') && letter != '-')
            letter = '_';
    return host;
}

std::string choice_text(const TimedChoice &choice) {
    char us[40] = "null";
    if (choice.us > 0.0F && std::isfinite(choice.us))
        std::snprintf(us, sizeof us, "%.7g", static_cast<double>(choice.us));
    return "{\"name\":" + quoted(choice.name) + ",\"us\":" + us + "}";
}

} // namespace

std::string verdict_line(const WatchTerms &terms, const Trial &trial, int64_t time_ms,
                         const std::string &host, int process) {
    std::string choices;
    for (const TimedChoice &choice : trial.choices)
        choices += (choices.empty() ? "" : ",") + choice_text(choice);
    char text[512];
    std::snprintf(text, sizeof text,
                  "{\"version\":%" PRIu32 ",\"time_ms\":%" PRId64
                  ",\"host\":\"%s\",\"process\":%d,\"communicator\":\"%016" PRIx64
                  "\",\"ranks\":%" PRIu32 ",\"nodes\":%" PRIu32 ",\"ranks_per_node\":%" PRIu32
                  ",\"table\":\"%08" PRIx32 "\",\"call\":%" PRIu64
                  ",\"operation\":\"%s\",\"bytes\":%" PRIu64
                  ",\"verdict\":\"%s\",\"ran\":%zu,\"runs\":%zu,\"choices\":[",
                  kVerdictVersion, time_ms, host.c_str(), process, terms.communicator, terms.ranks,
                  terms.nodes, terms.ranks_per_node, terms.table, trial.call,
                  tuccl_call_name(trial.key.operation), trial.key.bytes,
                  verdict_name(trial.verdict), trial.ran, trial.runs);
    return text + choices + "]}";
}

VerdictLog::VerdictLog(std::string folder, uint64_t most_bytes)
    : folder_(std::move(folder)), most_bytes_(most_bytes) {
}

void VerdictLog::add(const WatchTerms &terms, const Trial &trial) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const int64_t time_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
    const std::lock_guard<std::mutex> lock(mutex_);
    write(verdict_line(terms, trial, time_ms, host_here(), getpid()) + "\n");
}

bool VerdictLog::open_file() {
    if (process_ != getpid()) {
        char name[160];
        std::snprintf(name, sizeof name, "/tuccl-verdicts-%s-%d-%08" PRIx32 ".jsonl",
                      host_here().c_str(), static_cast<int>(getpid()),
                      static_cast<uint32_t>(random_number()));
        path_ = folder_ + name;
        process_ = getpid();
        if (file_ >= 0)
            (void)close(file_);
        file_ = -1;
    }
    if (file_ < 0) {
        constexpr mode_t kMode = 0644;
        file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC,
                     kMode);
        bytes_ = 0;
    }
    return file_ >= 0;
}

void VerdictLog::write(const std::string &line) {
    if (file_ >= 0 && process_ == getpid() && bytes_ + line.size() > most_bytes_) {
        const std::string old = path_.substr(0, path_.rfind('.')) + ".old.jsonl";
        (void)std::rename(path_.c_str(), old.c_str());
        (void)close(file_);
        file_ = -1;
    }
    // In one write, so that a reader finds whole lines.
    const bool is_written = open_file() && ::write(file_, line.data(), line.size()) ==
                                               static_cast<ssize_t>(line.size());
    if (is_written)
        bytes_ += line.size();
    else if (!std::exchange(has_failed_, true))
        log_warning("verdicts are not logged in TUCCL_GUARD_LOG=%s: %s", folder_.c_str(),
                    std::generic_category().message(errno).c_str());
}

VerdictLog *verdict_log() {
    static VerdictLog *const only = []() -> VerdictLog * {
        const char *folder = std::getenv("TUCCL_GUARD_LOG");
        if (folder == nullptr || folder[0] == '\0')
            return nullptr;
        char *whole = realpath(folder, nullptr); // The job may change its folder.
        auto *made = new VerdictLog(whole != nullptr ? whole : folder, kMostBytes);
        std::free(whole);
        return made;
    }();
    return only;
}

} // namespace tuccl
