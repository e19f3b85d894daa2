// NCCL's functions that create and end communicators, as the job calls them.
#include "group.h"
#include "local_ranks.h"
#include "new_communicators.h"
#include "real_nccl.h"
#include "register.h"

#include <memory>
#include <optional>
#include <utility>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace tuccl {

namespace {

// Steps after NCCL was called to create communicators.
int after_making(const std::vector<NewCommunicator> &created, int result) {
    if (result != kNcclSuccess && result != kNcclInProgress)
        return result;
    if (!group_is_open())
        return set_up_new(created, result);
    for (const NewCommunicator &communicator : created)
        group_makes(communicator);
    return result;
}

// The last rank of this process ends a communicator. The executor's memory is freed after NCCL's,
// which waits for the ranks of a node first.
int destroy_last(ncclComm_t comm, int device, std::shared_ptr<LocalRanks> local) {
    if (local->count() == 1) {
        const int result = real_nccl().CommDestroy(comm);
        local->free();
        return result;
    }
    if (group_is_open()) { // Of this thread; NCCL waits at its end.
        const int result = real_nccl().CommDestroy(comm);
        free_later(device, std::move(local));
        return result;
    }
    const auto result = std::make_shared<int>(kNcclSuccess);
    const bool is_done = run_detached(device, [comm, local, result] {
        *result = real_nccl().CommDestroy(comm);
        local->free();
    });
    return is_done ? *result : kNcclSuccess;
}

int destroy(ncclComm_t comm) {
    comm = cancel_set_up(comm);
    forget_origin(comm);
    Communicator *communicator = singleton<Register>().take(comm);
    std::shared_ptr<LocalRanks> last;
    int device = 0;
    if (communicator != nullptr) {
        device = communicator->device_number();
        const std::shared_ptr<Rails> rails = communicator->rails();
        last = singleton<Register>().dispose(communicator);
        if (rails != nullptr)
            for (const ncclComm_t lane : rails->take())
                (void)real_nccl().CommDestroy(lane);
    }
    const int result = last != nullptr ? destroy_last(comm, device, std::move(last))
                                       : real_nccl().CommDestroy(comm);
    if (!group_is_open())
        free_left();
    return result;
}

// Starts to end the rails' kernels, which the executor's abort does not reach.
Aborting abort_rails(Communicator *communicator) {
    const std::shared_ptr<Rails> rails = communicator->rails();
    if (rails == nullptr)
        return {};
    communicator->wait_for_calls();
    return rails->start_abort();
}

// Aborts NCCL's communicator beside the rails: each may have a kernel that hangs.
int abort_with_rails(ncclComm_t comm, Communicator *communicator) {
    if (communicator == nullptr)
        return real_nccl().CommAbort(comm);
    communicator->give_up();
    const Aborting rails = abort_rails(communicator);
    return real_nccl().CommAbort(comm);
}

int abort(ncclComm_t comm) {
    comm = cancel_set_up(comm);
    forget_origin(comm);
    Communicator *communicator = singleton<Register>().take(comm);
    const int result = abort_with_rails(comm, communicator);
    if (communicator == nullptr)
        return result;
    const int device = communicator->device_number();
    if (auto last = singleton<Register>().dispose(communicator))
        free_later(device, std::move(last));
    return result;
}

// Stops the executor on a communicator that continues to exist; its further calls are NCCL's. Its
// rails end beside what NCCL does with it while the result lives.
Aborting give_up(ncclComm_t comm) {
    Communicator *communicator = singleton<Register>().find(comm);
    if (communicator == nullptr)
        return {};
    {
        const InUse use(communicator, comm);
        if (!use.exists())
            return {};
        communicator->give_up();
    }
    return abort_rails(communicator);
}

int shrink(ncclComm_t comm, int *excluded, int excluded_count, ncclComm_t *created,
           ncclConfig *config, int flags) {
    const Aborting rails = (flags & kNcclShrinkAbort) != 0 ? give_up(comm) : Aborting();
    std::optional<OwnedConfig> own = without_settings(comm, config);
    return real_nccl().CommShrink(comm, excluded, excluded_count, created,
                                  own ? own->for_nccl() : config, flags);
}

int revoke(ncclComm_t comm, int flags) {
    comm = cancel_set_up(comm);
    const Aborting rails = give_up(comm);
    return real_nccl().CommRevoke(comm, flags);
}

} // namespace

} // namespace tuccl

using tuccl::after_making;
using tuccl::kNcclInvalidUsage;
using tuccl::Origin;
using tuccl::origin_by_id;
using tuccl::origin_from;
using tuccl::OwnedConfig;
using tuccl::real_nccl;
using tuccl::without_settings;

EXPORTED int ncclGetUniqueId(ncclUniqueId *id) {
    if (id != nullptr)
        *id = {}; // NCCL does not write all of it.
    const int result = real_nccl().GetUniqueId(id);
    if (result == tuccl::kNcclSuccess && id != nullptr)
        tuccl::open_network_roll(id);
    return result;
}

EXPORTED int ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) {
    const Origin origin = origin_by_id(id, ranks, rank, nullptr);
    return after_making({{comm, origin}}, real_nccl().CommInitRank(comm, ranks, id, rank));
}

EXPORTED int ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig *config) {
    const Origin origin = origin_by_id(id, ranks, rank, config);
    return after_making({{comm, origin}},
                        real_nccl().CommInitRankConfig(comm, ranks, id, rank, config));
}

EXPORTED int ncclCommInitRankScalable(ncclComm_t *comm, int ranks, int rank, int id_count,
                                      ncclUniqueId *ids, ncclConfig *config) {
    const Origin origin =
        id_count > 0 ? origin_by_id(ids[0], ranks, rank, config) : tuccl::unknown_origin();
    return after_making({{comm, origin}},
                        real_nccl().CommInitRankScalable(comm, ranks, rank, id_count, ids, config));
}

EXPORTED int ncclCommInitAll(ncclComm_t *comms, int count, const int *devices) {
    const std::vector<Origin> origins =
        tuccl::origins_here(count > 0 ? static_cast<size_t>(count) : 0);
    const int result = real_nccl().CommInitAll(comms, count, devices);
    std::vector<tuccl::NewCommunicator> created;
    for (int i = 0; result == tuccl::kNcclSuccess && i < count; i++)
        created.push_back({&comms[i], origins[static_cast<size_t>(i)]});
    return after_making(created, result);
}

EXPORTED int ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *created,
                           ncclConfig *config) {
    if (!real_nccl().CommSplit)
        return kNcclInvalidUsage;
    const Origin origin = origin_from(comm, color, config);
    std::optional<OwnedConfig> own = without_settings(comm, config);
    return after_making({{created, origin}}, real_nccl().CommSplit(comm, color, key, created,
                                                                   own ? own->for_nccl() : config));
}

EXPORTED int ncclCommShrink(ncclComm_t comm, int *excluded, int excluded_count, ncclComm_t *created,
                            ncclConfig *config, int flags) {
    if (!real_nccl().CommShrink)
        return kNcclInvalidUsage;
    const Origin origin = origin_from(comm, 0, config);
    return after_making({{created, origin}},
                        tuccl::shrink(comm, excluded, excluded_count, created, config, flags));
}

// Its communicator stays NCCL's. New ranks have no parent, and none of its settings.
EXPORTED int ncclCommGrow(ncclComm_t comm, int ranks, const ncclUniqueId *id, int rank,
                          ncclComm_t *created, ncclConfig *config) {
    std::optional<OwnedConfig> own = without_settings(comm, config);
    return real_nccl().CommGrow(comm, ranks, id, rank, created, own ? own->for_nccl() : config);
}

EXPORTED int ncclCommFinalize(ncclComm_t comm) {
    return real_nccl().CommFinalize(tuccl::cancel_set_up(comm));
}

EXPORTED int ncclCommDestroy(ncclComm_t comm) {
    return tuccl::destroy(comm);
}

EXPORTED int ncclCommAbort(ncclComm_t comm) {
    return tuccl::abort(comm);
}

EXPORTED int ncclCommRevoke(ncclComm_t comm, int flags) {
    if (!real_nccl().CommRevoke)
        return kNcclInvalidUsage;
    return tuccl::revoke(comm, flags);
}

EXPORTED int ncclCommGetAsyncError(ncclComm_t comm, int *error) {
    return tuccl::async_error(comm, error);
}

EXPORTED int ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t bytes,
                                    ncclWindow_t *window, int flags) {
    const int result = real_nccl().CommWindowRegister(comm, buffer, bytes, window, flags);
    if (result == tuccl::kNcclSuccess && (flags & tuccl::kNcclWindowSymmetric) != 0)
        tuccl::group_registers({comm, buffer, bytes, window});
    return result;
}

EXPORTED int ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
    tuccl::forget_window(comm, window);
    return real_nccl().CommWindowDeregister(comm, window);
}
