#include "new_communicators.h"

#include "real_nccl.h"
#include "register.h"
#include "rendezvous.h"
#include "set_up.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace tuccl {

namespace {

constexpr auto kPause = std::chrono::microseconds(200);

struct Background {
    std::atomic<bool> cancelled{false};
    std::atomic<bool> ended{false};
    int result = kNcclSuccess;
    std::thread thread;
};

struct Backgrounds {
    std::mutex mutex;
    std::unordered_map<ncclComm_t, std::unique_ptr<Background>> by_comm;
    std::atomic<size_t> count{0}; // Avoids the lock while the map is empty.
};

Backgrounds &backgrounds() {
    static Backgrounds *const only = new Backgrounds;
    return *only;
}

// Waits until NCCL is ready; meanwhile the caller only queries the communicator.
void run(ncclComm_t comm, Origin origin, Background *background) {
    int error = kNcclInProgress;
    while (!background->cancelled.load() &&
           real_nccl().CommGetAsyncError(comm, &error) == kNcclSuccess && error == kNcclInProgress)
        std::this_thread::sleep_for(kPause);
    if (error == kNcclSuccess && !background->cancelled.load())
        background->result = set_up(comm, origin, &background->cancelled, nullptr);
    background->ended.store(true);
}

void start(const NewCommunicator &created) {
    const ncclComm_t comm = *created.comm;
    Backgrounds &all = backgrounds();
    const std::lock_guard<std::mutex> lock(all.mutex);
    auto &background = all.by_comm[comm];
    background = std::make_unique<Background>();
    background->thread = std::thread(run, comm, created.origin, background.get());
    all.count.store(all.by_comm.size());
}

std::unique_ptr<Background> take(ncclComm_t comm) {
    Backgrounds &all = backgrounds();
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.by_comm.find(comm);
    if (found == all.by_comm.end())
        return nullptr;
    auto background = std::move(found->second);
    all.by_comm.erase(found);
    all.count.store(all.by_comm.size());
    return background;
}

// Each in its own thread, because each waits for its ranks, which may be among the others.
int set_up_together(const std::vector<NewCommunicator> &created) {
    std::vector<int> results(created.size(), kNcclSuccess);
    Latch ready(created.size());
    std::vector<std::thread> threads;
    for (size_t i = 1; i < created.size(); i++)
        threads.emplace_back(
            [&, i] { results[i] = set_up(*created[i].comm, created[i].origin, nullptr, &ready); });
    results[0] = set_up(*created[0].comm, created[0].origin, nullptr, &ready);
    for (std::thread &thread : threads)
        thread.join();
    int failed = kNcclSuccess;
    for (size_t i = 0; i < created.size(); i++) {
        if (results[i] == kNcclSuccess)
            continue;
        failed = results[i];
        forget_origin(*created[i].comm);
        (void)real_nccl().CommAbort(*created[i].comm);
        *created[i].comm = nullptr;
    }
    return failed;
}

} // namespace

int set_up_new(const std::vector<NewCommunicator> &created, int result) {
    if (result != kNcclSuccess && result != kNcclInProgress)
        return result;
    std::vector<NewCommunicator> present;
    for (const NewCommunicator &communicator : created) {
        accept(communicator.origin);
        if (*communicator.comm != nullptr) {
            present.push_back(communicator);
            remember_origin(*communicator.comm, communicator.origin);
        }
    }
    if (present.empty())
        return result;
    if (result == kNcclSuccess)
        return set_up_together(present);
    if (result == kNcclInProgress && real_nccl().CommGetAsyncError != nullptr)
        for (const NewCommunicator &communicator : present)
            start(communicator);
    return result;
}

namespace {

// An error of the communicators that the executor split from it for its rail.
int error_of_rails(ncclComm_t comm) {
    Communicator *communicator = Register::of_process().find(comm);
    if (communicator == nullptr)
        return kNcclSuccess;
    const InUse use(communicator, comm);
    if (!use.exists())
        return kNcclSuccess;
    for (const ncclComm_t rail : communicator->rails()) {
        int error = kNcclSuccess;
        if (real_nccl().CommGetAsyncError(rail, &error) == kNcclSuccess && error != kNcclSuccess &&
            error != kNcclInProgress)
            return error;
    }
    return kNcclSuccess;
}

} // namespace

int async_error(ncclComm_t comm, int *error) {
    if (real_nccl().CommGetAsyncError == nullptr)
        return kNcclInvalidUsage;
    const int result = real_nccl().CommGetAsyncError(comm, error);
    if (result == kNcclSuccess && *error == kNcclSuccess)
        *error = error_of_rails(comm);
    Backgrounds &all = backgrounds();
    if (all.count.load() == 0 || result != kNcclSuccess ||
        (*error != kNcclSuccess && *error != kNcclInProgress))
        return result;
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.by_comm.find(comm);
    if (found == all.by_comm.end())
        return result;
    Background &background = *found->second;
    if (!background.ended.load()) {
        *error = kNcclInProgress;
    } else if (background.result != kNcclSuccess) {
        *error = background.result;
    } else {
        background.thread.join();
        all.by_comm.erase(found);
        all.count.store(all.by_comm.size());
        return real_nccl().CommGetAsyncError(comm, error);
    }
    return result;
}

void cancel_set_up(ncclComm_t comm) {
    if (backgrounds().count.load() == 0)
        return;
    const auto background = take(comm);
    if (background == nullptr)
        return;
    background->cancelled.store(true);
    background->thread.join();
}

} // namespace tuccl
