#include "local_ranks.h"

#include "executor.h"
#include "log.h"
#include "singleton.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <future>
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

} // namespace

std::shared_ptr<LocalRanks> LocalRanks::join(uint64_t number) {
    Joined &all = singleton<Joined>();
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

} // namespace

void free_later(int device, std::shared_ptr<LocalRanks> ranks) {
    Aborted &all = singleton<Aborted>();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.later.push_back({device, std::move(ranks)});
}

void free_left() {
    Aborted &all = singleton<Aborted>();
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
    std::mutex mutex; // Protects `running`.
    std::condition_variable changed;
    size_t running = 0;
    const pid_t process = getpid();

    Works() {
        // CUDA must not be destroyed meanwhile. A forked process has no such threads.
        std::atexit([] {
            Works &all = singleton<Works>();
            std::unique_lock<std::mutex> lock(all.mutex);
            if (getpid() == all.process)
                (void)all.changed.wait_for(lock, kPatienceAtExit, [&] { return all.running == 0; });
        });
    }
};

void act(std::packaged_task<void()> *work) {
    Works &all = singleton<Works>();
    {
        const std::lock_guard<std::mutex> alone(all.one_at_a_time);
        (*work)();
    }
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.running--;
    all.changed.notify_all();
}

} // namespace

bool run_detached(int device, std::function<void()> work) {
    const auto task = std::make_shared<std::packaged_task<void()>>(std::move(work));
    const std::future<void> done = task->get_future();
    Works &all = singleton<Works>();
    {
        const std::lock_guard<std::mutex> lock(all.mutex);
        all.running++;
    }
    try {
        std::thread([device, task] {
            (void)tuccl_device_enter(device, nullptr);
            act(task.get());
        }).detach();
    } catch (const std::system_error &) {
        const InDevice scope(device);
        act(task.get()); // Otherwise nothing would be freed.
    }
    return done.wait_for(kPatience) == std::future_status::ready;
}

} // namespace tuccl
