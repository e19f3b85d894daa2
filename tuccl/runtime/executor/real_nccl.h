// The functions of the NCCL that the job runs on.
#ifndef TUCCL_EXECUTOR_REAL_NCCL_H
#define TUCCL_EXECUTOR_REAL_NCCL_H

#include "executor.h"
#include "nccl_abi.h"

#include <cstdint>

namespace tuccl {

// A function that a release may lack: a call of it is invalid usage then.
template <typename... Parameters> struct NcclFunction {
    int (*address)(Parameters...);

    explicit operator bool() const {
        return address != nullptr;
    }
    int operator()(Parameters... parameters) const {
        return address != nullptr ? address(parameters...) : int{kNcclInvalidUsage};
    }
};

// Names behind "nccl", and parameters.
#define TUCCL_NCCL_FUNCTIONS(F)                                                                    \
    F(AllReduce, const void *, void *, size_t, int, int, ncclComm_t, ncclStream)                   \
    F(AllGather, const void *, void *, size_t, int, ncclComm_t, ncclStream)                        \
    F(ReduceScatter, const void *, void *, size_t, int, int, ncclComm_t, ncclStream)               \
    F(Broadcast, const void *, void *, size_t, int, int, ncclComm_t, ncclStream)                   \
    F(Bcast, void *, size_t, int, int, ncclComm_t, ncclStream)                                     \
    F(Reduce, const void *, void *, size_t, int, int, int, ncclComm_t, ncclStream)                 \
    F(AlltoAll, const void *, void *, size_t, int, ncclComm_t, ncclStream)                         \
    F(Gather, const void *, void *, size_t, int, int, ncclComm_t, ncclStream)                      \
    F(Scatter, const void *, void *, size_t, int, int, ncclComm_t, ncclStream)                     \
    F(Send, const void *, size_t, int, int, ncclComm_t, ncclStream)                                \
    F(Recv, void *, size_t, int, int, ncclComm_t, ncclStream)                                      \
    F(GroupStart, )                                                                                \
    F(GroupEnd, )                                                                                  \
    F(GroupSimulateEnd, ncclSimInfo *)                                                             \
    F(GetVersion, int *)                                                                           \
    F(GetUniqueId, ncclUniqueId *)                                                                 \
    F(CommInitRank, ncclComm_t *, int, ncclUniqueId, int)                                          \
    F(CommInitRankConfig, ncclComm_t *, int, ncclUniqueId, int, ncclConfig *)                      \
    F(CommInitRankScalable, ncclComm_t *, int, int, int, ncclUniqueId *, ncclConfig *)             \
    F(CommInitAll, ncclComm_t *, int, const int *)                                                 \
    F(CommSplit, ncclComm_t, int, int, ncclComm_t *, ncclConfig *)                                 \
    F(CommShrink, ncclComm_t, int *, int, ncclComm_t *, ncclConfig *, int)                         \
    F(CommGrow, ncclComm_t, int, const ncclUniqueId *, int, ncclComm_t *, ncclConfig *)            \
    F(CommFinalize, ncclComm_t)                                                                    \
    F(CommDestroy, ncclComm_t)                                                                     \
    F(CommAbort, ncclComm_t)                                                                       \
    F(CommRevoke, ncclComm_t, int)                                                                 \
    F(CommGetAsyncError, ncclComm_t, int *)                                                        \
    F(CommWindowRegister, ncclComm_t, void *, size_t, ncclWindow_t *, int)                         \
    F(CommWindowDeregister, ncclComm_t, ncclWindow_t)                                              \
    F(CommCount, ncclComm_t, int *)                                                                \
    F(CommUserRank, ncclComm_t, int *)                                                             \
    F(CommCuDevice, ncclComm_t, int *)

struct RealNccl {
#define TUCCL_MEMBER(name, ...) NcclFunction<__VA_ARGS__> name;
    TUCCL_NCCL_FUNCTIONS(TUCCL_MEMBER)
#undef TUCCL_MEMBER
    NcclTeam (*TeamLsa)(ncclComm_t); // NULL before 2.28.
};

// Resolved at the first call: in the loader's order, or in a libnccl.so.2 that a library loaded
// locally.
const RealNccl &real_nccl();

// Returns a communicator's asynchronous error or kNcclInProgress (ncclResult_t), or the error of
// asking.
int state_of(ncclComm_t comm);

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
