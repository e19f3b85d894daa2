#include "group.h"

#include "free_sums.h"
#include "metrics.h"
#include "real_nccl.h"
#include "register.h"

#include <algorithm>
#include <vector>

namespace tuccl {

namespace {

struct Held {
    NcclCall call;
    tuccl_call decided;
};

// The calls of one communicator in a group.
struct Part {
    ncclComm_t nccl;
    bool for_nccl;   // It contains a call that the executor cannot run.
    bool waits;      // For the group's end.
    uint64_t number; // Of its communicator, if it waits.
    std::vector<Held> held;
    std::vector<ncclStream> nccl_streams; // Streams of the calls passed to NCCL.
};

struct Group {
    std::vector<Part> parts;
    std::vector<NewCommunicator> created;
    std::vector<NewWindow> windows;
};

thread_local int depth = 0;
thread_local Group group;

Part &part_of(ncclComm_t nccl) {
    const auto found = std::find_if(group.parts.begin(), group.parts.end(),
                                    [nccl](const Part &part) { return part.nccl == nccl; });
    if (found != group.parts.end())
        return *found;
    group.parts.push_back({nccl, false, false, 0, {}, {}});
    return group.parts.back();
}

int give_to_nccl(Part *part, const NcclCall &call) {
    auto &streams = part->nccl_streams;
    if (std::find(streams.begin(), streams.end(), call.stream) == streams.end())
        streams.push_back(call.stream);
    return hand_over(call);
}

int release_to_nccl(Part *part) {
    part->for_nccl = true;
    int result = kNcclSuccess;
    std::vector<Held> released;
    released.swap(part->held);
    for (const Held &held : released) {
        const int said = give_to_nccl(part, held.call);
        if (result == kNcclSuccess)
            result = said;
    }
    return result;
}

int launch_held(const Part &part, Communicator *communicator) {
    for (const Held &held : part.held)
        if (const int result = communicator->launch(held.decided, held.call.stream))
            return result;
    return kNcclSuccess;
}

// Runs the calls that were held back, but for those that contain calls of NCCL: these wait for the
// group's end. Launches never block, so one thread may serve the communicators of several devices.
int run_part(Part *part) {
    Communicator *communicator = singleton<Register>().find(part->nccl);
    if (communicator == nullptr)
        return release_to_nccl(part);
    const InUse use(communicator, part->nccl);
    if (!use)
        return release_to_nccl(part);
    part->waits = communicator->calls_nccl();
    part->number = communicator->number();
    if (!part->waits)
        if (const int result = launch_held(*part, communicator))
            return result;
    for (const ncclStream stream : part->nccl_streams)
        if (const int result = communicator->order_next(stream))
            return result;
    return kNcclSuccess;
}

int pass_on_held(const Part &part) {
    for (const Held &held : part.held)
        if (const int result = hand_over(held.call))
            return result;
    return kNcclSuccess;
}

// Called after NCCL's `result` of the group.
int end_part(const Part &part, int result) {
    Communicator *communicator = singleton<Register>().find(part.nccl);
    if (communicator == nullptr)
        return part.waits ? pass_on_held(part) : int{kNcclSuccess};
    const InUse use(communicator, part.nccl);
    if (!use)
        return part.waits ? pass_on_held(part) : int{kNcclSuccess};
    // A communicator that does not block puts the calls there later.
    if (!part.nccl_streams.empty() && result == kNcclSuccess)
        (void)communicator->order_done();
    return part.waits ? launch_held(part, communicator) : int{kNcclSuccess};
}

} // namespace

namespace {

// Calls `act(windows)` with the windows of a communicator that the executor serves.
template <typename Act> void with_windows(ncclComm_t comm, Act act) {
    Communicator *communicator = singleton<Register>().find(comm);
    if (communicator == nullptr)
        return;
    const InUse use(communicator, comm);
    if (Windows *windows = use.exists() ? communicator->windows() : nullptr)
        act(windows);
}

// NCCL may have no windows here, and then writes NULL.
void remember_window(const NewWindow &added) {
    if (*added.handle != nullptr)
        with_windows(added.comm, [&added](Windows *windows) {
            windows->add(*added.handle, added.begin, added.bytes);
        });
}

} // namespace

bool group_is_open() {
    return depth > 0;
}

int group_start() {
    const int result = real_nccl().GroupStart();
    if (result == kNcclSuccess)
        depth++;
    return result;
}

int group_end() {
    if (depth > 1) {
        depth--;
        return real_nccl().GroupEnd();
    }
    int failed = kNcclSuccess;
    for (Part &part : group.parts) {
        const int result = run_part(&part);
        if (failed == kNcclSuccess)
            failed = result;
    }
    std::vector<Part> parts;
    parts.swap(group.parts);
    depth = 0;
    int result = real_nccl().GroupEnd();
    count_group(result == kNcclSuccess || result == kNcclInProgress);
    // Ranks may name communicators in different orders. Calls of NCCL outside a group may wait for
    // the other ranks, so all ranks make them in the same order.
    std::stable_sort(parts.begin(), parts.end(), [](const Part &first, const Part &second) {
        return first.number < second.number;
    });
    if (result == kNcclSuccess || result == kNcclInProgress)
        for (const Part &part : parts) {
            const int ended = end_part(part, result);
            if (failed == kNcclSuccess)
                failed = ended;
        }
    std::vector<NewWindow> windows;
    windows.swap(group.windows);
    if (result == kNcclSuccess)
        for (const NewWindow &window : windows)
            remember_window(window);
    std::vector<NewCommunicator> created;
    created.swap(group.created);
    // Also after a failure: the other ranks of new communicators wait for this one.
    result = set_up_new(created, result);
    return failed != kNcclSuccess ? failed : result;
}

int group_simulate_end(ncclSimInfo *info) {
    if (!real_nccl().GroupSimulateEnd)
        return kNcclInvalidUsage;
    if (depth > 1) {
        depth--;
        return real_nccl().GroupSimulateEnd(info);
    }
    int failed = kNcclSuccess;
    for (Part &part : group.parts) {
        const int result = release_to_nccl(&part);
        if (failed == kNcclSuccess)
            failed = result;
    }
    group.parts.clear();
    group.created.clear();
    group.windows.clear();
    depth = 0;
    const int result = real_nccl().GroupSimulateEnd(info);
    count_group(false);
    return failed != kNcclSuccess ? failed : result;
}

int group_call(const NcclCall &call) {
    Communicator *communicator = singleton<Register>().find(call.comm);
    if (communicator == nullptr)
        return hand_over(call);
    Part &part = part_of(call.comm);
    if (call.kind >= kOperations)
        return give_to_nccl(&part, call);
    Held held = {call, {}};
    bool takes = false;
    {
        const InUse use(communicator, call.comm);
        takes = use && !part.for_nccl && communicator->decide(call, &held.decided) &&
                (part.held.empty() || part.held.front().call.kind == call.kind);
    }
    if (takes) {
        part.held.push_back(held);
        return kNcclSuccess;
    }
    const int result = release_to_nccl(&part);
    return result != kNcclSuccess ? result : give_to_nccl(&part, call);
}

void group_makes(const NewCommunicator &created) {
    group.created.push_back(created);
}

void group_registers(const NewWindow &window) {
    if (group_is_open())
        group.windows.push_back(window);
    else
        remember_window(window);
}

void forget_window(ncclComm_t comm, ncclWindow_t window) {
    with_windows(comm, [window](Windows *windows) { windows->remove(window); });
}

} // namespace tuccl
