// The functions of the NCCL that the job runs on.
#ifndef TUCCL_EXECUTOR_REAL_NCCL_H
#define TUCCL_EXECUTOR_REAL_NCCL_H

#include "executor.h"
#include "nccl_abi.h"

#include <cstdint>
#include <thread>
#include <vector>

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

// Communicators of NCCL that are aborted at the same time.
//
// ncclCommAbort ends a communicator's kernels and frees its memory, for which CUDA waits until no
// kernel runs on the device: for ever, if one hangs on a communicator whose abort would come next.
class Aborting {
  public:
    Aborting() = default;
    // Starts to abort each, in a thread of its own: before 2.22 NCCL frees each at once, also in a
    // group (src/init.cc).
    explicit Aborting(const std::vector<ncclComm_t> &comms);
    // Waits until all are gone.
    ~Aborting();
    Aborting(Aborting &&) = default;
    Aborting &operator=(Aborting &&) = delete;

  private:
    std::vector<std::thread> threads_;
};

enum CallKind : uint8_t {
#define X(NAME, nccl_name, name, flow) k##nccl_name = TUCCL_##NAME,
    TUCCL_CALLS(X)
#undef X
};

// One call of NCCL that moves data, with whatever parameters its kind has.
struct NcclCall {
    const void *send;
    void *receive;
    size_t count;
    int type;
    int reduction; // 0 where the kind has none.
    int root;      // The peer of kSend and kRecv; 0 where the kind has none.
    ncclComm_t comm;
    ncclStream stream;
    CallKind kind;
};

int pass_on(const NcclCall &call);

} // namespace tuccl

#endif
