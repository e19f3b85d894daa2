// One call of NCCL that moves data, with whatever parameters its kind has.
#ifndef TUCCL_EXECUTOR_NCCL_CALL_H
#define TUCCL_EXECUTOR_NCCL_CALL_H

#include "executor.h"
#include "nccl_abi.h"

namespace tuccl {

// Collectives that the executor knows have the codes of enum tuccl_operation.
enum CallKind : uint8_t {
    kBroadcast = TUCCL_BROADCAST,
    kReduce = TUCCL_REDUCE,
    kAllGather = TUCCL_ALL_GATHER,
    kReduceScatter = TUCCL_REDUCE_SCATTER,
    kAllReduce = TUCCL_ALL_REDUCE,
    kAlltoAll = TUCCL_ALLTOALL,
    kGather,
    kScatter,
    kSend,
    kRecv,
};

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

// Hands the call to the real NCCL.
int pass_on(const NcclCall &call);

} // namespace tuccl

#endif
