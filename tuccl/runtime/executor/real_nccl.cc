#include "real_nccl.h"

#include <dlfcn.h>
#include <system_error>

namespace tuccl {

namespace {

// RTLD_NEXT does not see what was loaded with RTLD_LOCAL (an extension module and all it needs).
void *find(const char *name) {
    if (void *next = dlsym(RTLD_NEXT, name))
        return next;
    static void *const loaded = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
    return loaded != nullptr ? dlsym(loaded, name) : nullptr;
}

template <typename Function> void fill(Function *slot, const char *name) {
    *slot = reinterpret_cast<Function>(find(name));
}

RealNccl find_all() {
    RealNccl real = {};
    fill(&real.AllReduce, "ncclAllReduce");
    fill(&real.AllGather, "ncclAllGather");
    fill(&real.ReduceScatter, "ncclReduceScatter");
    fill(&real.Broadcast, "ncclBroadcast");
    fill(&real.Bcast, "ncclBcast");
    fill(&real.Reduce, "ncclReduce");
    fill(&real.AlltoAll, "ncclAlltoAll");
    fill(&real.Gather, "ncclGather");
    fill(&real.Scatter, "ncclScatter");
    fill(&real.Send, "ncclSend");
    fill(&real.Recv, "ncclRecv");
    fill(&real.GroupStart, "ncclGroupStart");
    fill(&real.GroupEnd, "ncclGroupEnd");
    fill(&real.GroupSimulateEnd, "ncclGroupSimulateEnd");
    fill(&real.GetUniqueId, "ncclGetUniqueId");
    fill(&real.CommInitRank, "ncclCommInitRank");
    fill(&real.CommInitRankConfig, "ncclCommInitRankConfig");
    fill(&real.CommInitRankScalable, "ncclCommInitRankScalable");
    fill(&real.CommInitAll, "ncclCommInitAll");
    fill(&real.CommSplit, "ncclCommSplit");
    fill(&real.CommShrink, "ncclCommShrink");
    fill(&real.CommFinalize, "ncclCommFinalize");
    fill(&real.CommDestroy, "ncclCommDestroy");
    fill(&real.CommAbort, "ncclCommAbort");
    fill(&real.CommRevoke, "ncclCommRevoke");
    fill(&real.CommGetAsyncError, "ncclCommGetAsyncError");
    fill(&real.CommCount, "ncclCommCount");
    fill(&real.CommUserRank, "ncclCommUserRank");
    fill(&real.CommCuDevice, "ncclCommCuDevice");
    return real;
}

} // namespace

const RealNccl &real_nccl() {
    static const RealNccl real = find_all();
    return real;
}

int state_of(ncclComm_t comm) {
    int error = kNcclSuccess;
    if (real_nccl().CommGetAsyncError == nullptr)
        return error;
    const int result = real_nccl().CommGetAsyncError(comm, &error);
    return result != kNcclSuccess ? result : error;
}

namespace {

void abort_one(ncclComm_t comm) {
    (void)real_nccl().CommAbort(comm);
}

} // namespace

Aborting::Aborting(const std::vector<ncclComm_t> &comms) {
    threads_.reserve(comms.size());
    for (const ncclComm_t comm : comms) {
        try {
            threads_.emplace_back(abort_one, comm);
        } catch (const std::system_error &) {
            abort_one(comm);
        }
    }
}

Aborting::~Aborting() {
    for (std::thread &thread : threads_)
        thread.join();
}

namespace {

template <typename... Parameters, typename... Arguments>
int call_if_present(int (*function)(Parameters...), Arguments... arguments) {
    return function != nullptr ? function(arguments...) : kNcclInvalidUsage;
}

} // namespace

int pass_on(const NcclCall &c) {
    const RealNccl &real = real_nccl();
    switch (c.kind) {
    case kBroadcast:
        return call_if_present(real.Broadcast, c.send, c.receive, c.count, c.type, c.root, c.comm,
                               c.stream);
    case kReduce:
        return call_if_present(real.Reduce, c.send, c.receive, c.count, c.type, c.reduction, c.root,
                               c.comm, c.stream);
    case kAllGather:
        return call_if_present(real.AllGather, c.send, c.receive, c.count, c.type, c.comm,
                               c.stream);
    case kReduceScatter:
        return call_if_present(real.ReduceScatter, c.send, c.receive, c.count, c.type, c.reduction,
                               c.comm, c.stream);
    case kAllReduce:
        return call_if_present(real.AllReduce, c.send, c.receive, c.count, c.type, c.reduction,
                               c.comm, c.stream);
    case kAlltoAll:
        return call_if_present(real.AlltoAll, c.send, c.receive, c.count, c.type, c.comm, c.stream);
    case kGather:
        return call_if_present(real.Gather, c.send, c.receive, c.count, c.type, c.root, c.comm,
                               c.stream);
    case kScatter:
        return call_if_present(real.Scatter, c.send, c.receive, c.count, c.type, c.root, c.comm,
                               c.stream);
    case kSend:
        return call_if_present(real.Send, c.send, c.count, c.type, c.root, c.comm, c.stream);
    case kRecv:
        return call_if_present(real.Recv, c.receive, c.count, c.type, c.root, c.comm, c.stream);
    }
    return kNcclInvalidUsage;
}

} // namespace tuccl
