// The function by which a process chooses schedules itself (choose.h).
#include "choose.h"
#include "register.h"

namespace tuccl {

namespace {

// Ranks may serve different communicators, and wait for one another in each: so all take them in
// one order.
const char *prepare_communicators(const tuccl_entry_record &choice) {
    for (const auto &[communicator, nccl] : singleton<Register>().in_order()) {
        const InUse use(communicator, nccl);
        if (!use)
            continue;
        if (const char *fault = communicator->prepare(choice))
            return fault;
    }
    return nullptr;
}

const char *choose_and_prepare(const void *entry, size_t bytes) {
    if (const char *fault = choose(entry, bytes))
        return fault;
    const tuccl_entry_record *choice = chosen_entry();
    if (choice == nullptr)
        return nullptr;
    const char *fault = prepare_communicators(*choice);
    if (fault != nullptr)
        (void)choose(nullptr, 0);
    return fault;
}

} // namespace

} // namespace tuccl

extern "C" __attribute__((visibility("default"))) const char *
tuccl_executor_choose(const void *entry, size_t bytes) {
    return tuccl::choose_and_prepare(entry, bytes);
}
