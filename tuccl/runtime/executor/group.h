// ncclGroupStart to ncclGroupEnd, per thread.
//
// NCCL's own group is opened along with ours, so that everything that is not interposed behaves as
// ever in it. What the executor would take is held back until the outermost end, or until its
// communicator turns out to need NCCL.
//
// All or nothing goes by communicator: ranks that group a communicator's collectives group them
// alike, but nothing says that they have the same other communicators, or the same sends and
// receives, in the group. So these have no influence.
#ifndef TUCCL_EXECUTOR_GROUP_H
#define TUCCL_EXECUTOR_GROUP_H

#include "made.h"
#include "nccl_call.h"

namespace tuccl {

bool group_is_open();

int group_start();
// What the outermost end yields: the first error of the executor's, or what NCCL says.
int group_end();
// NCCL says how long what is in the group would take, and runs none of it: all of it is NCCL's
// then.
int group_simulate_end(ncclSimInfo *info);

// A call in an open group.
int group_call(const NcclCall &call);
// A communicator that NCCL makes when the group ends.
void group_makes(const Made &made);

} // namespace tuccl

#endif
