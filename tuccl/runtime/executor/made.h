// Communicators between NCCL's having made them and their caller's getting them.
#ifndef TUCCL_EXECUTOR_MADE_H
#define TUCCL_EXECUTOR_MADE_H

#include "origin.h"

#include <vector>

namespace tuccl {

// A communicator that NCCL was asked to make.
struct Made {
    ncclComm_t *comm;
    Origin origin;
};

// Sets up what NCCL has just made in one call or group, given what it said: success, or that it is
// still at it. Then set-up goes on in the background, and async_error tells when it has ended.
// Returns what the caller is to be told. NULL communicators (of a split) are left out.
int set_up_made(const std::vector<Made> &made, int result);

// ncclCommGetAsyncError: until set-up has ended, a communicator is in progress.
int async_error(ncclComm_t comm, int *error);

// Ends set-up in the background, if there is any.
void cancel_set_up(ncclComm_t comm);

} // namespace tuccl

#endif
