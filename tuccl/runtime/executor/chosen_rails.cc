#include "chosen_rails.h"

#include "device_exchange.h"
#include "exchange.h"
#include "log.h"

extern "C" {
#include "crc32.h"
}

#include <chrono>
#include <cstring>
#include <string>

namespace tuccl {

namespace {

// Ranks that choose in turn are together, but one may be at work on something else.
constexpr auto kPatience = std::chrono::seconds(60);

// The rounds in which ranks tell one another how far they have come.
class Agreement {
  public:
    explicit Agreement(const RailOwner &owner)
        : exchange_(owner.comm, owner.grid.ranks(), &owner.gave_up, nullptr) {
    }

    const char *open() {
        return exchange_.open();
    }
    const Exchange &exchange() const {
        return exchange_;
    }

    // Returns the fault of the first rank that has one, empty if no rank has.
    std::string round(const char *fault) {
        if (fault != nullptr)
            mine_.fault[std::string(fault).copy(mine_.fault, sizeof mine_.fault - 1)] = '\0';
        exchange_.wait_at_most(kPatience, "another rank did not choose the same in time");
        if (const char *broken = exchange_.round(mine_, &all_))
            return broken;
        for (size_t rank = 0; rank < all_.size(); rank++)
            if (all_[rank].fault[0] != '\0')
                return "rank " + std::to_string(rank) + ": " +
                       std::string(all_[rank].fault,
                                   strnlen(all_[rank].fault, sizeof all_[rank].fault));
        return {};
    }

    // Whether all ranks are about to do the same.
    std::string round_of(uint64_t number) {
        mine_.number = number;
        const std::string fault = round(nullptr);
        if (fault.empty())
            for (size_t rank = 1; rank < all_.size(); rank++)
                if (all_[rank].number != all_[0].number)
                    return "ranks 0 and " + std::to_string(rank) + " chose different schedules";
        return fault;
    }

    // Whether the plugin obeys requests on all ranks.
    std::string round_of_requests(const char *fault, bool obeys, bool *all_obey) {
        mine_.obeys_requests = obeys ? 1 : 0;
        const std::string wrong = round(fault);
        *all_obey = obeys_requests(all_);
        return wrong;
    }

  private:
    Exchange exchange_;
    Greeting mine_ = {};
    std::vector<Greeting> all_;
};

std::vector<RailCall> missing_calls(const RailOwner &owner, const Rule &rule) {
    std::vector<RailCall> calls;
    add_rail_calls(rule, owner.programs, owner.rails.request() != nullptr, &calls);
    return owner.rails.not_connected(calls);
}

uint64_t number_of(const Rule &rule) {
    const uint64_t words[] = {rule.min_bytes, rule.max_bytes, rule.buffer_bytes, rule.program};
    return tuccl_crc32(0, reinterpret_cast<const unsigned char *>(words), sizeof words);
}

std::string make_communicators(const RailOwner &owner, const NetworkNeed &need,
                               Agreement *agreement) {
    const char *fault = owner.rails.make(owner.comm, need);
    bool all_obey = false;
    const std::string wrong =
        agreement->round_of_requests(fault, owner.rails.obey_requests(), &all_obey);
    if (wrong.empty() && !all_obey)
        owner.rails.forgo_requests();
    return wrong;
}

std::string connect(const RailOwner &owner, const Rule &rule, Agreement *agreement) {
    const Exchange &exchange = agreement->exchange();
    const char *fault =
        owner.rails.connect(missing_calls(owner, rule), owner.runner.memory(owner.device_number),
                            [&exchange] { return exchange.obstacle(); });
    return agreement->round(fault);
}

std::string prepare(const RailOwner &owner, const Rule &rule, const NetworkNeed &need) {
    Agreement agreement(owner);
    if (const char *fault = agreement.open())
        return fault;
    std::string fault = agreement.round_of(number_of(rule));
    if (fault.empty() && !owner.rails.has(need))
        fault = make_communicators(owner, need, &agreement);
    return fault.empty() ? connect(owner, rule, &agreement) : fault;
}

void tell(const RailOwner &owner) {
    log_info("executor has lanes of a rail: %zu, about %.1f MiB of NCCL's device memory",
             owner.rails.count(), static_cast<double>(owner.rails.nccl_bytes()) / (1 << 20));
}

} // namespace

const char *prepare_rails(const RailOwner &owner, const Rule &rule, const NetworkNeed &need) {
    static thread_local std::string fault;
    if (owner.rails.has_ended())
        return "its rail could not be connected before";
    if (owner.rails.has(need) && missing_calls(owner, rule).empty())
        return nullptr;
    tuccl_device_scope before;
    if (tuccl_device_enter(owner.device_number, &before) != 0)
        return "its device cannot be made the current one";
    owner.rails.set_preparing(true);
    fault = prepare(owner, rule, need);
    if (!fault.empty())
        owner.rails.abort();
    owner.rails.set_preparing(false);
    owner.runner.use(owner.rails);
    tuccl_device_leave(&before);
    if (fault.empty()) {
        tell(owner);
        return nullptr;
    }
    log_warning("executor runs no more schedules on a communicator across hosts: %s",
                fault.c_str());
    return fault.c_str();
}

} // namespace tuccl
