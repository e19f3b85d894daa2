#include "grid.h"

#include <unordered_set>

namespace tuccl {

namespace {

// The ranks that stand behind the first one on its host.
uint32_t ranks_of_first_host(const std::vector<Greeting> &greetings) {
    uint32_t count = 1;
    while (count < greetings.size() && greetings[count].host == greetings.front().host)
        count++;
    return count;
}

// Whether every `local_ranks` ranks in order are those of one host.
bool is_regular(const std::vector<Greeting> &greetings, uint32_t local_ranks) {
    if (greetings.size() % local_ranks != 0)
        return false;
    std::unordered_set<uint64_t> hosts;
    for (size_t rank = 0; rank < greetings.size(); rank++)
        if (rank % local_ranks == 0 ? !hosts.insert(greetings[rank].host).second
                                    : greetings[rank].host != greetings[rank - 1].host)
            return false;
    return true;
}

// A thread that starts calls of several ranks would wait inside NCCL for itself.
bool shares_a_process(const std::vector<Greeting> &greetings) {
    std::unordered_set<uint64_t> processes;
    for (const Greeting &greeting : greetings)
        if (!processes.insert(greeting.process).second)
            return true;
    return false;
}

} // namespace

std::string find_grid(const std::vector<Greeting> &greetings, uint32_t rank, Grid *grid) {
    const uint32_t local_ranks = ranks_of_first_host(greetings);
    const auto nodes = static_cast<uint32_t>(greetings.size()) / local_ranks;
    *grid = {nodes, local_ranks, rank / local_ranks, rank % local_ranks};
    if (local_ranks > TUCCL_MAX_RANKS)
        return "it serves at most " + std::to_string(TUCCL_MAX_RANKS) + " ranks of a node";
    if (local_ranks == greetings.size())
        return {};
    if (!is_regular(greetings, local_ranks))
        return "its nodes have different numbers of ranks, or a node's ranks do not follow one "
               "another";
    for (const Greeting &greeting : greetings)
        if (greeting.does_not_block != 0)
            return "it does not block; across nodes it serves communicators that do";
    if (shares_a_process(greetings))
        return "two of its ranks are in one process; across nodes it serves one rank per process";
    return {};
}

} // namespace tuccl
