// A thread that polls NCCL for errors of served communicators and then ends their kernels, which
// would otherwise wait for ever for a lost rank.
#ifndef TUCCL_EXECUTOR_WATCHDOG_H
#define TUCCL_EXECUTOR_WATCHDOG_H

namespace tuccl {

// Starts the process's only watchdog thread, once; it ends with the process.
void start_watchdog();

} // namespace tuccl

#endif
