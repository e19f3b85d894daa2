#include "local_ranks.h"

#include "device_exchange.h"
#include "log.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <unordered_map>
#include <utility>

namespace tuccl {

namespace {

struct Joined {
    std::mutex mutex;
    std::unordered_map<uint64_t, std::weak_ptr<LocalRanks>> by_number;
};

Joined &joined() {
    static Joined *const only = new Joined;
    return *only;
}

} // namespace

std::shared_ptr<LocalRanks> LocalRanks::join(uint64_t number) {
    Joined &all = joined();
    const std::lock_guard<std::mutex> lock(all.mutex);
    for (auto entry = all.by_number.begin(); entry != all.by_number.end();)
        entry = entry->second.expired() ? all.by_number.erase(entry) : std::next(entry);
    std::shared_ptr<LocalRanks> ranks = all.by_number[number].lock();
    if (ranks == nullptr) {
        ranks = std::make_shared<LocalRanks>();
        all.by_number[number] = ranks;
    }
    const std::lock_guard<std::mutex> joining(ranks->mutex_);
    ranks->joined_++;
    return ranks;
}

bool LocalRanks::leave(tuccl_device_comm *device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (device != nullptr)
        left_.push_back(device);
    return ++gone_ == joined_;
}

size_t LocalRanks::count() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return joined_;
}

void LocalRanks::free() {
    bool quiet = true;
    for (tuccl_device_comm *device : left_)
        quiet = tuccl_device_comm_quiesce(device) != 0 && quiet;
    if (!quiet) {
        log_warning("executor leaves a communicator's staging memory allocated: a rank of another "
                    "process has not ended its last call");
        return;
    }
    for (tuccl_device_comm *device : left_)
        tuccl_device_comm_destroy(device);
}

namespace {

struct Later {
    int device; // Of one of them.
    std::shared_ptr<LocalRanks> ranks;
};

struct Aborted {
    std::mutex mutex;
    std::vector<Later> later;
};

Aborted &aborted() {
    static Aborted *const only = new Aborted;
    return *only;
}

} // namespace

void free_later(int device, std::shared_ptr<LocalRanks> ranks) {
    Aborted &all = aborted();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.later.push_back({device, std::move(ranks)});
}

void free_left() {
    Aborted &all = aborted();
    std::vector<Later> left;
    {
        const std::lock_guard<std::mutex> lock(all.mutex);
        left.swap(all.later);
    }
    for (Later &entry : left)
        (void)run_detached(entry.device, [ranks = std::move(entry.ranks)] { ranks->free(); });
}

namespace {

constexpr auto kPatience = std::chrono::milliseconds(250);
constexpr auto kPatienceAtExit = std::chrono::seconds(5);

// Work in progress.
struct Works {
    std::mutex one_at_a_time;
    std::mutex mutex; // Protects the members below.
    std::condition_variable changed;
    size_t running = 0;
    pid_t process = getpid();
};

Works &works() {
    static Works *const only = [] {
        static Works *const instance = new Works;
        // CUDA must not be destroyed meanwhile. A forked process has no such threads.
        std::atexit([] {
            std::unique_lock<std::mutex> lock(instance->mutex);
            if (getpid() == instance->process)
                (void)instance->changed.wait_for(lock, kPatienceAtExit,
                                                 [] { return instance->running == 0; });
        });
        return instance;
    }();
    return *only;
}

struct Work {
    std::function<void()> act;
    bool done = false;
};

void act(int device, const std::shared_ptr<Work> &work) {
    {
        const std::lock_guard<std::mutex> alone(works().one_at_a_time);
        tuccl_device_scope before;
        const bool entered = tuccl_device_enter(device, &before) == 0;
        work->act();
        if (entered)
            tuccl_device_leave(&before);
    }
    const std::lock_guard<std::mutex> lock(works().mutex);
    work->act = nullptr;
    work->done = true;
    works().running--;
    works().changed.notify_all();
}

} // namespace

bool run_detached(int device, std::function<void()> act_of_work) {
    const auto work = std::make_shared<Work>(Work{std::move(act_of_work), false});
    Works &all = works();
    {
        const std::lock_guard<std::mutex> lock(all.mutex);
        all.running++;
    }
    try {
        std::thread(act, device, work).detach();
    } catch (const std::system_error &) {
        act(device, work); // Without a thread the caller waits: otherwise nothing would be freed.
    }
    std::unique_lock<std::mutex> lock(all.mutex);
    return all.changed.wait_for(lock, kPatience, [&] { return work->done; });
}

} // namespace tuccl
