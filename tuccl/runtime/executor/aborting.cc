#include "aborting.h"

#include "real_nccl.h"

#include <system_error>

namespace tuccl {

namespace {

void abort_one(ncclComm_t comm) {
    (void)real_nccl().CommAbort(comm);
}

} // namespace

Aborting::Aborting(const std::vector<ncclComm_t> &comms) {
    threads_.reserve(comms.size());
    for (const ncclComm_t comm : comms) {
        try {
            threads_.emplace_back(abort_one, comm);
        } catch (const std::system_error &) {
            abort_one(comm);
        }
    }
}

Aborting::~Aborting() {
    for (std::thread &thread : threads_)
        thread.join();
}

} // namespace tuccl
