// Work that waits for devices, in a thread for which nobody has to wait.
#ifndef TUCCL_EXECUTOR_APART_H
#define TUCCL_EXECUTOR_APART_H

#include <functional>

namespace tuccl {

// Does it in a thread of its own whose current device is `device`, one such work at a time. Returns
// when it is done, or after a quarter of a second: then it is done later, and what it refers to has
// to last. True: it is done.
bool run_apart(int device, std::function<void()> work);

} // namespace tuccl

#endif
