#include "register.h"

#include "log.h"
#include "real_nccl.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace tuccl {

namespace {

// A thread's cached results by some bits of the address; zero initially, which matches nothing.
struct Remembered {
    uint64_t generation;
    ncclComm_t nccl;
    Communicator *communicator;
};
constexpr size_t kRemembered = 16;
thread_local Remembered remembered[kRemembered];

} // namespace

void Register::add(ncclComm_t nccl, Serving serving) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) {
        all_.push_back(std::make_unique<Communicator>());
        free_.push_back(all_.back().get());
    }
    Communicator *communicator = free_.back();
    free_.pop_back();
    {
        const std::lock_guard<std::mutex> rails_lock(communicator->rails_mutex_);
        communicator->rails_ = serving.rails;
    }
    communicator->serving_ = std::move(serving);
    communicator->windows_.clear();
    communicator->gave_up_.store(false);
    communicator->nccl_.store(nccl);
    served_[nccl] = communicator;
    generation_.fetch_add(1);
}

Communicator *Register::find(ncclComm_t nccl) {
    const uint64_t generation = generation_.load(std::memory_order_acquire);
    // Communicators are large separate objects: bits from 12 on distinguish them.
    Remembered &slot = remembered[(reinterpret_cast<uintptr_t>(nccl) >> 12) % kRemembered];
    if (slot.generation != generation || slot.nccl != nccl)
        slot = {generation, nccl, find_locked(nccl)};
    return slot.communicator;
}

Communicator *Register::find_locked(ncclComm_t nccl) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = served_.find(nccl);
    return found != served_.end() ? found->second : nullptr;
}

Communicator *Register::take(ncclComm_t nccl) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = served_.find(nccl);
    if (found == served_.end())
        return nullptr;
    Communicator *communicator = found->second;
    served_.erase(found);
    communicator->nccl_.store(nullptr);
    generation_.fetch_add(1);
    return communicator;
}

std::vector<std::pair<Communicator *, ncclComm_t>> Register::in_order() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::pair<Communicator *, ncclComm_t>> all;
    for (const auto &[nccl, communicator] : served_)
        all.emplace_back(communicator, nccl);
    std::sort(all.begin(), all.end(), [](const auto &first, const auto &second) {
        return first.first->number() < second.first->number();
    });
    return all;
}

std::shared_ptr<LocalRanks> Register::dispose(Communicator *communicator) {
    while (communicator->users_.load() != 0)
        std::this_thread::yield();
    std::shared_ptr<LocalRanks> local = std::move(communicator->serving_.local);
    const bool is_last = local != nullptr && local->leave(communicator->serving_.device.release());
    {
        const std::lock_guard<std::mutex> rails_lock(communicator->rails_mutex_);
        communicator->rails_ = nullptr;
    }
    communicator->serving_ = Serving{};
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(communicator);
    return is_last ? local : nullptr;
}

namespace {

constexpr auto kPeriod = std::chrono::milliseconds(100);

class Watchdog {
  public:
    Watchdog() : process_(getpid()), thread_([this] { watch(); }) {
    }

    // At exit: before NCCL and CUDA are destroyed.
    void stop() {
        if (getpid() != process_) // A forked process has no such thread.
            return;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            stopped_ = true;
        }
        wake_.notify_all();
        thread_.join();
    }

  private:
    void watch() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!wake_.wait_for(lock, kPeriod, [this] { return stopped_; }))
            singleton<Register>().for_each(look_at);
    }

    static int error_of(ncclComm_t comm) {
        const int error = state_of(comm);
        return error == kNcclInProgress ? int{kNcclSuccess} : error;
    }

    static void look_at(Communicator &communicator) {
        const InUse use(&communicator, communicator.nccl());
        if (!use)
            return;
        // NCCL completes a call of a communicator that does not block in the thread that asks about
        // it, and two that ask at once complete it twice: the job asks alone (`async_error`).
        int error = communicator.blocks() ? error_of(communicator.nccl()) : int{kNcclSuccess};
        if (const auto rails = communicator.rails(); rails != nullptr && error == kNcclSuccess)
            error = rails->error();
        if (error != kNcclSuccess)
            communicator.give_up_for(error);
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    bool stopped_ = false;
    pid_t process_;
    std::thread thread_; // Last member: it uses the others.
};

} // namespace

void start_watchdog() {
    if (!real_nccl().CommGetAsyncError)
        return;
    static const bool is_started = [] {
        static Watchdog *instance = nullptr;
        try {
            instance = new Watchdog;
        } catch (const std::system_error &) {
            log_warning("no thread could be started that asks NCCL about errors");
            return false;
        }
        std::atexit([] { instance->stop(); });
        return true;
    }();
    (void)is_started;
}

} // namespace tuccl
