#include "new_communicators.h"

#include "real_nccl.h"
#include "register.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
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

Meetings &meetings() {
    static Meetings *const only = new Meetings;
    return *only;
}

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
    Meetings &all = meetings();
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
        std::this_thread::sleep_for(kReadyPause);
    if (error == kNcclSuccess && !background->cancelled.load())
        background->result = set_up(comm, origin, {&background->cancelled, false, nullptr});
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

// Set-ups that their callers wait for. NCCL writes a communicator's handle before: another thread
// may abort it.
class Foregrounds {
  public:
    static Foregrounds &of_process() {
        static Foregrounds *const only = new Foregrounds;
        return *only;
    }

    using Cancelled = std::shared_ptr<std::atomic<bool>>;

    // Returns what ends the set-up's waiting.
    Cancelled enter(ncclComm_t comm) {
        const std::lock_guard<std::mutex> lock(mutex_);
        return by_comm_[comm] = std::make_shared<std::atomic<bool>>(false);
    }
    // Returns whether another thread ends the communicator.
    bool leave(ncclComm_t comm, const Cancelled &cancelled) {
        const std::lock_guard<std::mutex> lock(mutex_);
        // Another communicator may be at the address of one that was aborted meanwhile.
        if (by_comm_[comm] == cancelled)
            by_comm_.erase(comm);
        changed_.notify_all();
        return cancelled->load();
    }
    // Waits until the set-up has ended, but only briefly, because a thread that NCCL holds returns
    // when the communicator ends.
    void cancel(ncclComm_t comm) {
        constexpr auto kLongest = std::chrono::seconds(1);
        std::unique_lock<std::mutex> lock(mutex_);
        const auto found = by_comm_.find(comm);
        if (found == by_comm_.end())
            return;
        found->second->store(true);
        (void)changed_.wait_for(lock, kLongest, [&] { return by_comm_.count(comm) == 0; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::unordered_map<ncclComm_t, Cancelled> by_comm_;
};

// Each in its own thread, because each waits for its ranks, which may be among the others.
int set_up_together(const std::vector<NewCommunicator> &created) {
    std::vector<int> results(created.size(), kNcclSuccess);
    std::vector<std::thread> threads;
    Latch ready(created.size());
    std::vector<ncclComm_t> comms; // As they are now: the caller may reset its variables.
    std::vector<Foregrounds::Cancelled> cancelled;
    for (const NewCommunicator &communicator : created) {
        comms.push_back(*communicator.comm);
        cancelled.push_back(Foregrounds::of_process().enter(comms.back()));
    }
    const auto set_up_one = [&](size_t i) {
        const Start start = {cancelled[i].get(), true, &ready};
        results[i] = set_up(comms[i], created[i].origin, start);
    };
    for (size_t i = 1; i < created.size(); i++)
        threads.emplace_back(set_up_one, i);
    set_up_one(0);
    for (std::thread &thread : threads)
        thread.join();
    int failed = kNcclSuccess;
    for (size_t i = 0; i < created.size(); i++) {
        const bool is_cancelled = Foregrounds::of_process().leave(comms[i], cancelled[i]);
        if (results[i] == kNcclSuccess)
            continue;
        failed = results[i];
        if (is_cancelled)
            continue;
        forget_origin(comms[i]);
        (void)real_nccl().CommAbort(comms[i]);
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
    const std::shared_ptr<Rails> rails = communicator->rails();
    return rails != nullptr ? rails->error() : int{kNcclSuccess};
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
    Foregrounds::of_process().cancel(comm);
    if (backgrounds().count.load() == 0)
        return;
    const auto background = take(comm);
    if (background == nullptr)
        return;
    background->cancelled.store(true);
    background->thread.join();
}

} // namespace tuccl
