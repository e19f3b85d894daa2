// Work that waits for devices, in a detached thread.
#ifndef TUCCL_EXECUTOR_DETACHED_WORK_H
#define TUCCL_EXECUTOR_DETACHED_WORK_H

#include <functional>

namespace tuccl {

// Runs `work` in a thread whose current device is `device`, one at a time. Returns true when it is
// done, false after a quarter of a second: then it completes later, and its captures must stay
// valid.
bool run_detached(int device, std::function<void()> work);

} // namespace tuccl

#endif
