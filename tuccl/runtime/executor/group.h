// ncclGroupStart to ncclGroupEnd, per thread.
//
// NCCL's own group is opened as well, so that functions which are not interposed behave as usual.
// Calls for the executor are held back until the outermost end, or until their communicator needs
// NCCL.
//
// The executor runs all or none of a communicator's calls in a group: ranks group one
// communicator's collectives alike, but not necessarily those of other communicators, or sends and
// receives, which therefore have no influence.
#ifndef TUCCL_EXECUTOR_GROUP_H
#define TUCCL_EXECUTOR_GROUP_H

#include "new_communicators.h"
#include "real_nccl.h"

namespace tuccl {

bool group_is_open();

int group_start();
// Ends a group; the outermost end returns the executor's first error, or NCCL's result.
int group_end();
// NCCL estimates the group's time without running it: all of its calls are NCCL's then.
int group_simulate_end(ncclSimInfo *info);

// A call in an open group.
int group_call(const NcclCall &call);
// A communicator that NCCL creates when the group ends.
void group_makes(const NewCommunicator &created);

// A symmetric window, whose handle NCCL writes at once, or when the group ends.
struct NewWindow {
    ncclComm_t comm;
    const void *begin;
    size_t bytes;
    const ncclWindow_t *handle;
};
void group_registers(const NewWindow &window);
void forget_window(ncclComm_t comm, ncclWindow_t window);

} // namespace tuccl

#endif
