#include "nccl_call.h"

#include "real_nccl.h"

namespace tuccl {

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
