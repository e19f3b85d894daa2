#include "choose.h"

#include "rules_file.h"

#include <atomic>
#include <utility>

namespace tuccl {

namespace {

Decision chosen;
std::atomic<const Decision *> in_force{nullptr};
std::atomic<bool> has_chosen{false};
std::atomic<uint64_t> calls{0};

} // namespace

const Decision *chosen_decision() {
    return in_force.load(std::memory_order_acquire);
}

bool process_chooses() {
    return has_chosen.load();
}

void count_call() {
    calls.fetch_add(1, std::memory_order_relaxed);
}

} // namespace tuccl

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED const char *tuccl_executor_choose(const char *rules) {
    static std::string wrong;
    tuccl::has_chosen.store(true);
    tuccl::in_force.store(nullptr, std::memory_order_release);
    if (rules == nullptr)
        return nullptr;
    tuccl::Decision read;
    wrong = tuccl::parse_rules(rules, &read);
    if (!wrong.empty())
        return wrong.c_str();
    tuccl::chosen = std::move(read);
    tuccl::in_force.store(&tuccl::chosen, std::memory_order_release);
    return nullptr;
}

EXPORTED uint64_t tuccl_executor_calls() {
    return tuccl::calls.load(std::memory_order_relaxed);
}
