// NCCL's functions that move data, and its groups, as the job calls them.
#include "free_sums.h"
#include "group.h"
#include "guard.h"
#include "real_nccl.h"
#include "register.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace tuccl {

namespace {

int submit(const NcclCall &call) {
    if (group_is_open())
        return group_call(call);
    Communicator *communicator = singleton<Register>().find(call.comm);
    if (communicator == nullptr)
        return hand_over(call);
    const InUse use(communicator, call.comm);
    if (!use)
        return hand_over(call);
    if (Guard *guard = communicator->guard())
        return guard->run(communicator, call);
    tuccl_call decided;
    return communicator->decide(call, &decided) ? communicator->launch(decided, call.stream)
                                                : communicator->hand_over_in_order(call);
}

} // namespace

} // namespace tuccl

using tuccl::submit;

EXPORTED int ncclAllReduce(const void *send, void *receive, size_t count, int type, int reduction,
                           ncclComm_t comm, ncclStream stream) {
    return submit({send, receive, count, type, reduction, 0, comm, stream, tuccl::kAllReduce});
}

EXPORTED int ncclReduceScatter(const void *send, void *receive, size_t count, int type,
                               int reduction, ncclComm_t comm, ncclStream stream) {
    return submit({send, receive, count, type, reduction, 0, comm, stream, tuccl::kReduceScatter});
}

EXPORTED int ncclAllGather(const void *send, void *receive, size_t count, int type, ncclComm_t comm,
                           ncclStream stream) {
    return submit({send, receive, count, type, 0, 0, comm, stream, tuccl::kAllGather});
}

EXPORTED int ncclBroadcast(const void *send, void *receive, size_t count, int type, int root,
                           ncclComm_t comm, ncclStream stream) {
    return submit({send, receive, count, type, 0, root, comm, stream, tuccl::kBroadcast});
}

// NCCL's older broadcast, in place.
EXPORTED int ncclBcast(void *buffer, size_t count, int type, int root, ncclComm_t comm,
                       ncclStream stream) {
    return submit({buffer, buffer, count, type, 0, root, comm, stream, tuccl::kBroadcast});
}

EXPORTED int ncclReduce(const void *send, void *receive, size_t count, int type, int reduction,
                        int root, ncclComm_t comm, ncclStream stream) {
    return submit({send, receive, count, type, reduction, root, comm, stream, tuccl::kReduce});
}

EXPORTED int ncclAlltoAll(const void *send, void *receive, size_t count, int type, ncclComm_t comm,
                          ncclStream stream) {
    return submit({send, receive, count, type, 0, 0, comm, stream, tuccl::kAlltoAll});
}

EXPORTED int ncclGather(const void *send, void *receive, size_t count, int type, int root,
                        ncclComm_t comm, ncclStream stream) {
    return submit({send, receive, count, type, 0, root, comm, stream, tuccl::kGather});
}

EXPORTED int ncclScatter(const void *send, void *receive, size_t count, int type, int root,
                         ncclComm_t comm, ncclStream stream) {
    return submit({send, receive, count, type, 0, root, comm, stream, tuccl::kScatter});
}

EXPORTED int ncclSend(const void *send, size_t count, int type, int peer, ncclComm_t comm,
                      ncclStream stream) {
    return submit({send, nullptr, count, type, 0, peer, comm, stream, tuccl::kSend});
}

EXPORTED int ncclRecv(void *receive, size_t count, int type, int peer, ncclComm_t comm,
                      ncclStream stream) {
    return submit({nullptr, receive, count, type, 0, peer, comm, stream, tuccl::kRecv});
}

EXPORTED int ncclGroupStart() {
    return tuccl::group_start();
}

EXPORTED int ncclGroupEnd() {
    return tuccl::group_end();
}

EXPORTED int ncclGroupSimulateEnd(ncclSimInfo *info) {
    return tuccl::group_simulate_end(info);
}
