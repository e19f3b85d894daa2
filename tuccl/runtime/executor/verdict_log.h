// TUCCL_GUARD_LOG=FOLDER: a file of this process in it with a line of JSON for each verdict of the
// guard on communicators of which it has rank 0.
#ifndef TUCCL_EXECUTOR_VERDICT_LOG_H
#define TUCCL_EXECUTOR_VERDICT_LOG_H

#include <cstdint>
#include <mutex>
#include <string>

namespace tuccl {

struct Trial;
struct WatchTerms;

constexpr uint32_t kVerdictVersion = 1;

class VerdictLog {
  public:
    // `most_bytes`: of a file; a full one becomes the old one, whose place there is once.
    VerdictLog(std::string folder, uint64_t most_bytes);

    void add(const WatchTerms &terms, const Trial &trial);

  private:
    void write(const std::string &line);
    bool open_file();

    const std::string folder_;
    const uint64_t most_bytes_;
    std::mutex mutex_; // Of what follows. Verdicts are rare.
    std::string path_;
    int process_ = 0; // That has opened it: not a child that was forked.
    int file_ = -1;
    uint64_t bytes_ = 0;
    bool has_failed_ = false;
};

// A verdict as a line, without its end. `time_ms`: since 1970.
std::string verdict_line(const WatchTerms &terms, const Trial &trial, int64_t time_ms,
                         const std::string &host, int process);

// Of this process; NULL if TUCCL_GUARD_LOG is not set.
VerdictLog *verdict_log();

} // namespace tuccl

#endif
