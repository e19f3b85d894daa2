#include "new_communicators.h"

#include "log.h"
#include "own_threads.h"
#include "real_nccl.h"
#include "register.h"
#include "singleton.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>

namespace tuccl {

namespace {

constexpr auto kMeetingPause = std::chrono::milliseconds(1);

struct Meeting {
    size_t arrived = 0;
    size_t left = 0;
};

struct Meetings {
    std::mutex mutex;
    std::condition_variable changed;
    std::unordered_map<uint64_t, Meeting> by_number;
};

} // namespace

void Latch::count_down() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--left_ == 0)
        open_.notify_all();
}

void Latch::wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    open_.wait(lock, [this] { return left_ == 0; });
}

void meet_in_process(uint64_t number, size_t threads, const std::function<bool()> &gives_up) {
    Meetings &all = singleton<Meetings>();
    std::unique_lock<std::mutex> lock(all.mutex);
    Meeting &meeting = all.by_number[number];
    meeting.arrived++;
    all.changed.notify_all();
    while (meeting.arrived < threads && !gives_up())
        all.changed.wait_for(lock, kMeetingPause);
    if (++meeting.left == threads)
        all.by_number.erase(number);
}

namespace {

constexpr auto kReadyPause = std::chrono::microseconds(200);

// A set-up that is under way. Another thread may end its communicator, since NCCL writes the handle
// before.
struct SetUp {
    std::atomic<bool> cancelled{false};
    std::atomic<bool> ended{false};
    std::atomic<ncclComm_t> comm{nullptr};
    int result = kNcclSuccess;
    std::thread thread; // In the background; none where the caller waits.
};

struct SetUps {
    std::mutex mutex;
    std::condition_variable changed;
    std::unordered_map<ncclComm_t, std::shared_ptr<SetUp>> by_comm;
    std::atomic<size_t> count{0}; // Avoids the lock while the map is empty.

    std::shared_ptr<SetUp> enter(ncclComm_t comm) {
        const std::lock_guard<std::mutex> lock(mutex);
        const auto entered = std::make_shared<SetUp>();
        entered->comm.store(comm);
        by_comm[comm] = entered;
        count.store(by_comm.size());
        return entered;
    }
    // Another communicator may be at the address of one that was aborted meanwhile.
    void leave(ncclComm_t comm, const std::shared_ptr<SetUp> &entered) {
        const std::lock_guard<std::mutex> lock(mutex);
        const auto found = by_comm.find(comm);
        if (found != by_comm.end() && found->second == entered)
            by_comm.erase(found);
        count.store(by_comm.size());
        changed.notify_all();
    }
};

// Waits until NCCL is ready; meanwhile the caller only queries the communicator.
void run(ncclComm_t comm, Origin origin, SetUp *background) {
    int error = kNcclInProgress;
    while (!background->cancelled.load() &&
           real_nccl().CommGetAsyncError(comm, &error) == kNcclSuccess && error == kNcclInProgress)
        std::this_thread::sleep_for(kReadyPause);
    withdraw_offer(origin);
    if (error == kNcclSuccess && !background->cancelled.load()) {
        enter_device_of(comm);
        background->result =
            set_up(&background->comm, &origin, {&background->cancelled, false, nullptr});
    }
    background->ended.store(true);
}

// Of a communicator that no thread can set up. Returns an ncclResult_t.
int without_thread(const NewCommunicator &created) {
    log_warning("a communicator cannot start: no thread could be started");
    if (created.origin.roll != nullptr)
        created.origin.roll->fail(); // The others may wait for this rank's greeting.
    return kNcclSystemError;
}

// Each in its own thread, because each waits for its ranks, which may be among the others.
int set_up_together(const std::vector<NewCommunicator> &created) {
    SetUps &all = singleton<SetUps>();
    std::vector<std::thread> threads;
    Latch ready(created.size());
    std::vector<ncclComm_t> comms; // As they are now: the caller may reset its variables.
    std::vector<std::shared_ptr<SetUp>> entered;
    for (const NewCommunicator &communicator : created) {
        comms.push_back(*communicator.comm);
        entered.push_back(all.enter(comms.back()));
    }
    const auto set_up_one = [&](size_t i) {
        Origin origin = created[i].origin;
        // Of a parent that blocks, NCCL splits a child that does not before it returns, too.
        const bool blocks = origin.config == nullptr || origin.config->blocks();
        const Start start = {&entered[i]->cancelled, blocks, &ready};
        entered[i]->result = set_up(&entered[i]->comm, &origin, start);
        const ncclComm_t now = entered[i]->comm.load();
        if (now == comms[i])
            return;
        forget_origin(comms[i]);
        remember_origin(now, origin);
        *created[i].comm = now;
    };
    for (size_t i = 1; i < created.size(); i++) {
        try {
            threads.emplace_back([&, i] {
                enter_device_of(comms[i]);
                set_up_one(i);
            });
        } catch (const std::system_error &) {
            ready.count_down();
            entered[i]->result = without_thread(created[i]);
        }
    }
    set_up_one(0);
    for (std::thread &thread : threads)
        thread.join();
    int failed = kNcclSuccess;
    for (size_t i = 0; i < created.size(); i++) {
        all.leave(comms[i], entered[i]);
        if (entered[i]->result == kNcclSuccess)
            continue;
        failed = entered[i]->result;
        if (entered[i]->cancelled.load())
            continue;
        forget_origin(entered[i]->comm.load());
        (void)real_nccl().CommAbort(entered[i]->comm.load());
        *created[i].comm = nullptr;
    }
    return failed;
}

// Returns an ncclResult_t.
int start_in_background(const NewCommunicator &created) {
    const ncclComm_t comm = *created.comm;
    SetUps &all = singleton<SetUps>();
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto background = std::make_shared<SetUp>();
    background->comm.store(comm);
    try {
        background->thread = std::thread(run, comm, created.origin, background.get());
    } catch (const std::system_error &) {
        return without_thread(created);
    }
    all.by_comm[comm] = background;
    all.count.store(all.by_comm.size());
    return kNcclInProgress;
}

} // namespace

int set_up_new(const std::vector<NewCommunicator> &created, int result) {
    if (result != kNcclSuccess && result != kNcclInProgress)
        return result;
    std::vector<NewCommunicator> present;
    for (const NewCommunicator &communicator : created) {
        accept(communicator.origin);
        if (result == kNcclSuccess || *communicator.comm == nullptr)
            withdraw_offer(communicator.origin);
        if (*communicator.comm != nullptr) {
            present.push_back(communicator);
            remember_origin(*communicator.comm, communicator.origin);
        }
    }
    if (present.empty())
        return result;
    if (result == kNcclSuccess)
        return set_up_together(present);
    if (real_nccl().CommGetAsyncError)
        for (const NewCommunicator &communicator : present)
            if (const int started = start_in_background(communicator); started != kNcclInProgress)
                result = started;
    return result;
}

namespace {

// Returns the error that NCCL has just reported, or one of the communicators that the executor
// split from this one for its rail. An error ends what runs on it.
int noted_error(ncclComm_t comm, int error) {
    Communicator *communicator = singleton<Register>().find(comm);
    if (communicator == nullptr)
        return error;
    const InUse use(communicator, comm);
    if (!use.exists())
        return error;
    const std::shared_ptr<Rails> rails = communicator->rails();
    if (error == kNcclSuccess && rails != nullptr)
        error = rails->error();
    if (error != kNcclSuccess && error != kNcclInProgress && use)
        communicator->give_up_for(error);
    return error;
}

} // namespace

// NCCL joins its own thread in the call that finds it done, and releases 2.21 to 2.30 do so twice
// if two threads ask at once. Until a set-up in the background ends, it asks alone.
int async_error(ncclComm_t comm, int *error) {
    SetUps &all = singleton<SetUps>();
    int own = kNcclSuccess;
    if (all.count.load() > 0 && error != nullptr) {
        const std::lock_guard<std::mutex> lock(all.mutex);
        const auto found = all.by_comm.find(comm);
        if (found != all.by_comm.end() && found->second->thread.joinable()) {
            SetUp &background = *found->second;
            if (!background.ended.load()) {
                *error = kNcclInProgress;
                return kNcclSuccess;
            }
            own = background.result;
            if (own == kNcclSuccess) {
                background.thread.join();
                all.by_comm.erase(found);
                all.count.store(all.by_comm.size());
            }
        }
    }
    const int result = real_nccl().CommGetAsyncError(comm, error);
    if (result != kNcclSuccess)
        return result;
    if (own != kNcclSuccess && (*error == kNcclSuccess || *error == kNcclInProgress))
        *error = own;
    else
        *error = noted_error(comm, *error);
    return result;
}

ncclComm_t cancel_set_up(ncclComm_t comm) {
    // A thread that NCCL holds returns when the communicator ends.
    constexpr auto kLongest = std::chrono::seconds(1);
    SetUps &all = singleton<SetUps>();
    if (all.count.load() == 0)
        return comm;
    std::unique_lock<std::mutex> lock(all.mutex);
    const auto found = all.by_comm.find(comm);
    if (found == all.by_comm.end())
        return comm;
    const std::shared_ptr<SetUp> entered = found->second;
    entered->cancelled.store(true);
    if (!entered->thread.joinable()) {
        (void)all.changed.wait_for(lock, kLongest, [&] { return all.by_comm.count(comm) == 0; });
        return entered->comm.load();
    }
    all.by_comm.erase(found);
    all.count.store(all.by_comm.size());
    lock.unlock();
    entered->thread.join();
    return comm;
}

} // namespace tuccl
