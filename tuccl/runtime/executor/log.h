// Lines in NCCL's log: its format, its variable NCCL_DEBUG, standard output.
#ifndef TUCCL_EXECUTOR_LOG_H
#define TUCCL_EXECUTOR_LOG_H

#include <string>

namespace tuccl {

void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));

// With its domain; lines have what comes before the first dot.
std::string host_name();

} // namespace tuccl

#endif
