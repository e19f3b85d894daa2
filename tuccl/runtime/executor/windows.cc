#include "windows.h"

#include <algorithm>

namespace tuccl {

void Windows::add(const void *handle, const void *begin, size_t bytes) {
    const auto first = reinterpret_cast<uintptr_t>(begin);
    const std::lock_guard<std::mutex> lock(mutex_);
    all_.push_back({handle, first, first + bytes});
    count_.store(all_.size(), std::memory_order_release);
}

void Windows::remove(const void *handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto has_handle = [handle](const Window &window) { return window.handle == handle; };
    all_.erase(std::remove_if(all_.begin(), all_.end(), has_handle), all_.end());
    count_.store(all_.size(), std::memory_order_release);
}

void Windows::clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    all_.clear();
    count_.store(0, std::memory_order_release);
}

bool Windows::hold(const void *send, const void *receive) const {
    if (count_.load(std::memory_order_acquire) == 0)
        return false;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto holds = [this](const void *buffer) {
        const auto address = reinterpret_cast<uintptr_t>(buffer);
        return std::any_of(all_.begin(), all_.end(), [address](const Window &window) {
            return address >= window.begin && address < window.end;
        });
    };
    return holds(send) && holds(receive);
}

} // namespace tuccl
