#include "local_ranks.h"

#include "detached_work.h"
#include "log.h"

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

} // namespace tuccl
