#include "detached_work.h"

#include "device_exchange.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

namespace tuccl {

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
