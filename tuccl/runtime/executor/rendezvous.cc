#include "rendezvous.h"

#include <chrono>
#include <unordered_map>

namespace tuccl {

namespace {

constexpr auto kPause = std::chrono::milliseconds(1);

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
        all.changed.wait_for(lock, kPause);
    if (++meeting.left == threads)
        all.by_number.erase(number);
}

} // namespace tuccl
