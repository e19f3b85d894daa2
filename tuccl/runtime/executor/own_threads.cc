#include "own_threads.h"

#include "executor.h"
#include "real_nccl.h"

#include <system_error>

namespace tuccl {

void enter_device_of(ncclComm_t comm) {
    int device = 0;
    if (real_nccl().CommCuDevice && real_nccl().CommCuDevice(comm, &device) == kNcclSuccess)
        (void)tuccl_device_enter(device, nullptr);
}

Aborting::Aborting(const std::vector<ncclComm_t> &comms) {
    threads_.reserve(comms.size());
    for (const ncclComm_t comm : comms) {
        try {
            threads_.emplace_back([comm] {
                enter_device_of(comm); // NCCL makes a thread's device current again.
                (void)real_nccl().CommAbort(comm);
            });
        } catch (const std::system_error &) {
            (void)real_nccl().CommAbort(comm);
        }
    }
}

Aborting::~Aborting() {
    for (std::thread &thread : threads_)
        thread.join();
}

} // namespace tuccl
