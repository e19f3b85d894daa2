// Synchronization of one process's threads at set-up, on the host.
//
// Some of CUDA's calls (allocation, peer access) may wait for whatever runs on a device. One
// process may use several devices: a running kernel that waits for a rank which is still in such a
// call would never end. So all ranks of one process finish these calls before any of them launches
// a kernel.
#ifndef TUCCL_EXECUTOR_RENDEZVOUS_H
#define TUCCL_EXECUTOR_RENDEZVOUS_H

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

namespace tuccl {

class Latch {
  public:
    explicit Latch(size_t count) : left_(count) {
    }
    void count_down();
    void wait();

  private:
    std::mutex mutex_;
    std::condition_variable open_;
    size_t left_;
};

// One thread's arrival at a latch: it counts down once, when it waits or is destroyed.
class Arrival {
  public:
    explicit Arrival(Latch *latch) : latch_(latch) {
    }
    ~Arrival() {
        if (latch_ != nullptr)
            latch_->count_down();
    }
    Arrival(const Arrival &) = delete;
    Arrival &operator=(const Arrival &) = delete;

    void wait_for_others() {
        if (latch_ == nullptr)
            return;
        Latch *latch = latch_;
        latch_ = nullptr;
        latch->count_down();
        latch->wait();
    }

  private:
    Latch *latch_;
};

// Waits until `threads` threads have called it with this number, or `gives_up` returns true.
void meet_in_process(uint64_t number, size_t threads, const std::function<bool()> &gives_up);

} // namespace tuccl

#endif
