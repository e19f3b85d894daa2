// The functions of the NCCL that the job runs on.
#ifndef TUCCL_EXECUTOR_REAL_NCCL_H
#define TUCCL_EXECUTOR_REAL_NCCL_H

#include "nccl_abi.h"

#include <cstdint>

namespace tuccl {

// Functions missing in a release are NULL.
struct RealNccl {
    int (*AllReduce)(const void *, void *, size_t, int, int, ncclComm_t, ncclStream);
    int (*AllGather)(const void *, void *, size_t, int, ncclComm_t, ncclStream);
    int (*ReduceScatter)(const void *, void *, size_t, int, int, ncclComm_t, ncclStream);
    int (*Broadcast)(const void *, void *, size_t, int, int, ncclComm_t, ncclStream);
    int (*Bcast)(void *, size_t, int, int, ncclComm_t, ncclStream);
    int (*Reduce)(const void *, void *, size_t, int, int, int, ncclComm_t, ncclStream);
    int (*AlltoAll)(const void *, void *, size_t, int, ncclComm_t, ncclStream);
    int (*Gather)(const void *, void *, size_t, int, int, ncclComm_t, ncclStream);
    int (*Scatter)(const void *, void *, size_t, int, int, ncclComm_t, ncclStream);
    int (*Send)(const void *, size_t, int, int, ncclComm_t, ncclStream);
    int (*Recv)(void *, size_t, int, int, ncclComm_t, ncclStream);
    int (*GroupStart)();
    int (*GroupEnd)();
    int (*GroupSimulateEnd)(ncclSimInfo *);
    int (*GetUniqueId)(ncclUniqueId *);
    int (*CommInitRank)(ncclComm_t *, int, ncclUniqueId, int);
    int (*CommInitRankConfig)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig *);
    int (*CommInitRankScalable)(ncclComm_t *, int, int, int, ncclUniqueId *, ncclConfig *);
    int (*CommInitAll)(ncclComm_t *, int, const int *);
    int (*CommSplit)(ncclComm_t, int, int, ncclComm_t *, ncclConfig *);
    int (*CommShrink)(ncclComm_t, int *, int, ncclComm_t *, ncclConfig *, int);
    int (*CommFinalize)(ncclComm_t);
    int (*CommDestroy)(ncclComm_t);
    int (*CommAbort)(ncclComm_t);
    int (*CommRevoke)(ncclComm_t, int);
    int (*CommGetAsyncError)(ncclComm_t, int *);
    int (*CommCount)(ncclComm_t, int *);
    int (*CommUserRank)(ncclComm_t, int *);
    int (*CommCuDevice)(ncclComm_t, int *);
};

// Resolved at the first call: in the loader's order, or in a libnccl.so.2 that a library loaded
// locally.
const RealNccl &real_nccl();

// Returns a communicator's asynchronous error or kNcclInProgress (ncclResult_t), or the error of
// asking.
int state_of(ncclComm_t comm);

} // namespace tuccl

#endif
