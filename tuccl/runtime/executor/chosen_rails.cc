// What a schedule that a process chooses needs along its rail, prepared when it is chosen.
#include "communicator.h"

#include "exchange.h"
#include "log.h"
#include "staging_need.h"

extern "C" {
#include "crc32.h"
}

#include <chrono>

namespace tuccl {

namespace {

// Ranks that choose in turn are together, but one may be at work on something else.
constexpr auto kPatience = std::chrono::seconds(60);

uint64_t number_of(const Rule &rule) {
    const uint64_t words[] = {rule.min_bytes, rule.max_bytes, rule.buffer_bytes, rule.program};
    return tuccl_crc32(0, reinterpret_cast<const unsigned char *>(words), sizeof words);
}

} // namespace

std::vector<RailCall> Communicator::missing_calls(const Rule &rule) const {
    std::vector<RailCall> calls;
    add_rail_calls(rule, serving_.plan.programs, serving_.rails->request() != nullptr, &calls);
    return serving_.rails->not_connected(calls);
}

// Makes and connects what is missing, in rounds in which ranks tell one another how far they have
// come. Returns the fault of the first rank that has one, empty if no rank has.
std::string Communicator::agree_on_rails(const Rule &rule, const NetworkNeed &need) {
    Exchange exchange(nccl(), serving_.grid.ranks(), &gave_up_, nullptr);
    if (const char *fault = exchange.open())
        return fault;
    Rails &rails = *serving_.rails;
    Greeting mine = {};
    std::vector<Greeting> all;
    const auto round = [&](const char *fault) {
        if (fault != nullptr)
            set_fault(&mine, fault);
        exchange.wait_at_most(kPatience, "another rank did not choose the same in time");
        const char *broken = exchange.round(mine, &all);
        return broken != nullptr ? std::string(broken) : first_fault(all);
    };
    mine.number = number_of(rule);
    std::string fault = round(nullptr);
    for (size_t rank = 1; fault.empty() && rank < all.size(); rank++)
        if (all[rank].number != all[0].number)
            fault = "ranks 0 and " + std::to_string(rank) + " chose different schedules";
    if (fault.empty() && !rails.has(need)) {
        const char *own = rails.make(nccl(), need);
        mine.obeys_requests = rails.obey_requests() ? 1 : 0;
        fault = round(own);
        if (fault.empty() && !obeys_requests(all))
            rails.forgo_requests();
    }
    if (!fault.empty())
        return fault;
    return round(rails.connect(missing_calls(rule), serving_.runner->memory(serving_.device_number),
                               &exchange));
}

// All ranks call it alike, and agree: it succeeds on all of them or fails on all. The reason is
// valid until the thread's next call.
const char *Communicator::prepare_rails(const Rule &rule) {
    static thread_local std::string fault;
    Rails &rails = *serving_.rails;
    const NetworkNeed need = network_need_of(rule, serving_.plan.programs);
    if (rails.has_ended())
        return "its rail could not be connected before";
    if (rails.has(need) && missing_calls(rule).empty())
        return nullptr;
    const InDevice scope(serving_.device_number);
    if (!scope)
        return "its device cannot be made the current one";
    rails.set_preparing(true);
    fault = agree_on_rails(rule, need);
    if (!fault.empty())
        rails.abort();
    rails.set_preparing(false);
    serving_.runner->use(rails);
    if (fault.empty()) {
        log_info("executor has lanes of a rail: %zu, of all ranks: %zu, about %.1f MiB of NCCL's "
                 "device memory",
                 rails.count(), rails.round_lanes().size(),
                 static_cast<double>(rails.nccl_bytes()) / (1 << 20));
        return nullptr;
    }
    log_warning("executor runs no more schedules on a communicator across hosts: %s",
                fault.c_str());
    return fault.c_str();
}

} // namespace tuccl
