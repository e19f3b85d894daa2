#include "agreement.h"

#include "host_identity.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace tuccl {

namespace {

std::string describe_tables(size_t rank, const Greeting &first, const Greeting &differing) {
    const auto name = [](const Greeting &greeting) {
        char text[16] = "none";
        if (greeting.wanted != 0)
            std::snprintf(text, sizeof text, "CRC %08x", greeting.sum);
        return std::string(text);
    };
    return "ranks 0 and " + std::to_string(rank) + " have different tables (" + name(first) + ", " +
           name(differing) + "): give all ranks the same TUCCL_BUNDLE";
}

} // namespace

void set_fault(Greeting *greeting, const std::string &fault) {
    greeting->fault[fault.copy(greeting->fault, sizeof greeting->fault - 1)] = '\0';
}

std::string first_fault(const std::vector<Greeting> &greetings) {
    for (size_t rank = 0; rank < greetings.size(); rank++) {
        const char *fault = greetings[rank].fault;
        if (fault[0] != '\0')
            return "rank " + std::to_string(rank) + ": " +
                   std::string(fault, strnlen(fault, sizeof greetings[rank].fault));
    }
    return {};
}

Verdict judge(const std::vector<Greeting> &greetings) {
    const Greeting &first = greetings.front();
    const auto refuse = [](std::string reason) { return Verdict{false, false, std::move(reason)}; };
    for (size_t rank = 0; rank < greetings.size(); rank++)
        if (greetings[rank].magic != kGreetingMagic || greetings[rank].version != kExecutorVersion)
            return refuse("rank " + std::to_string(rank) +
                          " has another release of TuCCL's executor: install one on all ranks");
    if (std::string fault = first_fault(greetings); !fault.empty())
        return refuse(std::move(fault));
    if (std::none_of(greetings.begin(), greetings.end(),
                     [](const Greeting &greeting) { return greeting.wanted != 0; }))
        return {false, true, "no table is set"};
    for (size_t rank = 1; rank < greetings.size(); rank++)
        if (greetings[rank].sum != first.sum || greetings[rank].wanted != first.wanted)
            return refuse(describe_tables(rank, first, greetings[rank]));
    for (size_t rank = 1; rank < greetings.size(); rank++)
        if (greetings[rank].staging != first.staging)
            return refuse("ranks 0 and " + std::to_string(rank) +
                          " lay out their memory differently: tuccl_executor_choose was called on "
                          "one of them alone before");
    return {true, false, {}};
}

ScheduleBounds schedule_bounds(const std::vector<Greeting> &greetings) {
    ScheduleBounds bounds;
    for (const Greeting &greeting : greetings) {
        const auto sharers =
            std::count_if(greetings.begin(), greetings.end(), [&](const Greeting &other) {
                return other.core_set == greeting.core_set;
            });
        bounds.blocks = std::min(bounds.blocks, greeting.most_blocks);
        bounds.lanes = std::min(bounds.lanes, lanes_on({greeting.cores, greeting.core_set},
                                                       static_cast<size_t>(sharers)));
    }
    return bounds;
}

bool obeys_requests(const std::vector<Greeting> &greetings) {
    return std::all_of(greetings.begin(), greetings.end(),
                       [](const Greeting &greeting) { return greeting.obeys_requests != 0; });
}

} // namespace tuccl
