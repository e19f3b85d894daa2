// Set-up of new communicators, between their creation by NCCL and their return to the caller.
#ifndef TUCCL_EXECUTOR_NEW_COMMUNICATORS_H
#define TUCCL_EXECUTOR_NEW_COMMUNICATORS_H

#include "origin.h"

#include <vector>

namespace tuccl {

// A communicator that NCCL was called to create.
struct NewCommunicator {
    ncclComm_t *comm;
    Origin origin;
};

// Sets up the communicators of one call or group, given NCCL's result: success or in progress. Then
// set-up continues in the background until async_error reports its end. Returns the caller's
// result. NULL communicators (of a split) are skipped.
int set_up_new(const std::vector<NewCommunicator> &created, int result);

// ncclCommGetAsyncError: until set-up has ended, a communicator is in progress.
int async_error(ncclComm_t comm, int *error);

// Ends set-up in the background, if any.
void cancel_set_up(ncclComm_t comm);

} // namespace tuccl

#endif
