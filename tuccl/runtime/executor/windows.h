// The symmetric windows of a communicator: memory that the job registered for NCCL's faster kernels
// (ncclCommWindowRegister, NCCL 2.27).
//
// All ranks register a window together and use the same place in it, so whether a call's buffers
// lie in windows is the same on all of them.
#ifndef TUCCL_EXECUTOR_WINDOWS_H
#define TUCCL_EXECUTOR_WINDOWS_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace tuccl {

class Windows {
  public:
    void add(const void *handle, const void *begin, size_t bytes);
    void remove(const void *handle);
    void clear();

    // Whether both buffers of a call begin in a window.
    bool hold(const void *send, const void *receive) const;

  private:
    struct Window {
        const void *handle;
        uintptr_t begin;
        uintptr_t end;
    };
    std::atomic<size_t> count_{0}; // Avoids the lock in jobs without windows.
    mutable std::mutex mutex_;
    std::vector<Window> all_;
};

} // namespace tuccl

#endif
