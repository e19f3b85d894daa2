#include "choose.h"

extern "C" {
#include "bundle.h"
}

#include <atomic>
#include <cstring>

namespace tuccl {

namespace {

tuccl_entry_record chosen;
std::atomic<const tuccl_entry_record *> in_force{nullptr};
std::atomic<bool> has_chosen{false};
std::atomic<uint64_t> calls{0};

} // namespace

const tuccl_entry_record *chosen_entry() {
    return in_force.load(std::memory_order_acquire);
}

bool process_chooses() {
    return has_chosen.load();
}

void count_call() {
    calls.fetch_add(1, std::memory_order_relaxed);
}

const char *choose(const void *entry, size_t bytes) {
    has_chosen.store(true);
    in_force.store(nullptr, std::memory_order_release);
    if (entry == nullptr)
        return nullptr;
    tuccl_entry_record read;
    if (bytes != sizeof read)
        return "an entry has 48 bytes";
    std::memcpy(&read, entry, sizeof read);
    if (!tuccl_entry_is_sound(&read))
        return "the entry contradicts itself";
    chosen = read;
    in_force.store(&chosen, std::memory_order_release);
    return nullptr;
}

} // namespace tuccl

extern "C" __attribute__((visibility("default"))) uint64_t tuccl_executor_calls() {
    return tuccl::calls.load(std::memory_order_relaxed);
}
