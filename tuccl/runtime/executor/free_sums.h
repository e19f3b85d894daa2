// Sums that NCCL adds up although the table's do not move (bundle.h): it may add an element's parts
// in another order where a call has another size or another place.
#ifndef TUCCL_EXECUTOR_FREE_SUMS_H
#define TUCCL_EXECUTOR_FREE_SUMS_H

#include "real_nccl.h"

namespace tuccl {

// Tells whether the table that this process has read keeps its sums from moving.
void keep_sums(bool kept);

// Hands a call of the job to NCCL. If the table keeps sums from moving and the call adds floats, it
// says so on standard error, once for each operation; with TUCCL_INVARIANT=strict the call is
// invalid usage instead.
int hand_over(const NcclCall &call);

} // namespace tuccl

#endif
