// A thread that asks NCCL about errors of served communicators, and ends their kernels then: these
// wait for other ranks and would otherwise wait for ever for one that is gone.
#ifndef TUCCL_EXECUTOR_WATCHDOG_H
#define TUCCL_EXECUTOR_WATCHDOG_H

namespace tuccl {

// One per process, however often it is called; it ends with the process.
void start_watchdog();

} // namespace tuccl

#endif
