// Lines in NCCL's log: its format, its variable NCCL_DEBUG, standard output.
#ifndef TUCCL_EXECUTOR_LOG_H
#define TUCCL_EXECUTOR_LOG_H

namespace tuccl {

void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));

} // namespace tuccl

#endif
