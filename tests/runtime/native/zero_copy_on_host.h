// What zero_copy.cuh needs of CUDA, on host threads: each of them is a warp.
#ifndef TUCCL_TESTS_ZERO_COPY_ON_HOST_H
#define TUCCL_TESTS_ZERO_COPY_ON_HOST_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <strings.h>
#include <thread>

#define __device__
#define __forceinline__ inline

struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};

// Where the threads of a block meet.
class Meeting {
  public:
    explicit Meeting(uint32_t threads) : threads_(threads) {
    }
    bool all(bool mine) {
        std::unique_lock<std::mutex> lock(mutex_);
        common_ = common_ && mine;
        const uint64_t round = round_;
        if (++here_ == threads_) {
            result_ = common_;
            common_ = true;
            here_ = 0;
            round_++;
            met_.notify_all();
        }
        met_.wait(lock, [&] { return round_ != round; });
        return result_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable met_;
    uint32_t threads_;
    uint32_t here_ = 0;
    uint64_t round_ = 0;
    bool common_ = true;
    bool result_ = true;
};

struct Index {
    uint32_t x;
};
inline thread_local Index threadIdx;
inline thread_local Index blockIdx;
inline thread_local Index blockDim;
inline thread_local Index gridDim;
inline thread_local Meeting *block_meeting;

inline bool __syncthreads_and(bool mine) {
    return block_meeting->all(mine);
}
inline void __syncthreads() {
    (void)block_meeting->all(true);
}
inline void __syncwarp() {
}
inline bool __all_sync(uint32_t, bool mine) {
    return mine;
}
inline uint32_t __ballot_sync(uint32_t, bool mine) {
    return mine ? 1 : 0;
}
inline int __ffs(int word) {
    return ffs(word);
}
inline void __threadfence() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
}
inline void __threadfence_system() {
    __threadfence();
}
inline uint32_t atomicInc(uint32_t *word, uint32_t last) {
    uint32_t before = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(word, &before, before >= last ? 0 : before + 1, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return before;
}

namespace tuccl {

constexpr uint32_t kWarp = 1;
constexpr uint32_t kPollsPerLook = 1;

inline bool aborted(const volatile uint32_t *abort) {
    std::this_thread::yield();
    return *abort != 0;
}
inline uint64_t load_acquire(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
inline void store_release(uint64_t *word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

} // namespace tuccl

#endif
