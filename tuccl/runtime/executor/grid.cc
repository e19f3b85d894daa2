#include "grid.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace tuccl {

namespace {

// The ranks of a team; 1 where NCCL does not say the same on all ranks.
uint32_t team_of(const std::vector<Greeting> &greetings) {
    const uint16_t team = greetings.front().team;
    const bool is_agreed = std::all_of(greetings.begin(), greetings.end(),
                                       [&](const Greeting &one) { return one.team == team; });
    return is_agreed && team > 0 ? team : 1;
}

// The first rank of each node, and the number of all ranks.
std::vector<uint32_t> first_ranks(const std::vector<Greeting> &greetings) {
    const uint32_t team = team_of(greetings);
    std::vector<uint32_t> firsts;
    for (uint32_t rank = 0; rank < greetings.size(); rank++)
        if (rank == 0 || (greetings[rank].host != greetings[rank - 1].host && rank % team == 0))
            firsts.push_back(rank);
    firsts.push_back(static_cast<uint32_t>(greetings.size()));
    return firsts;
}

// Whether a host has ranks of several nodes.
bool appears_twice(const std::vector<Greeting> &greetings, const std::vector<uint32_t> &firsts) {
    std::unordered_map<uint64_t, size_t> node_of_host;
    for (size_t node = 0; node + 1 < firsts.size(); node++)
        for (uint32_t rank = firsts[node]; rank < firsts[node + 1]; rank++)
            if (node_of_host.emplace(greetings[rank].host, node).first->second != node)
                return true;
    return false;
}

Grid grid_of(const std::vector<uint32_t> &firsts, uint32_t rank) {
    const auto behind = std::upper_bound(firsts.begin(), firsts.end(), rank);
    const auto node = static_cast<uint32_t>(behind - firsts.begin()) - 1;
    Grid grid = {static_cast<uint32_t>(firsts.size()) - 1, firsts[node + 1] - firsts[node], node,
                 rank - firsts[node]};
    grid.firsts = firsts;
    for (uint32_t other = 0; other < grid.nodes; other++)
        if (grid.size_of(other) != grid.local_ranks)
            return grid;
    grid.firsts.clear();
    return grid;
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
    const std::vector<uint32_t> firsts = first_ranks(greetings);
    *grid = grid_of(firsts, rank);
    const auto first = greetings.begin() + grid->first_of_node();
    grid->spans_hosts = std::any_of(first, first + grid->local_ranks, [&](const Greeting &other) {
        return other.host != greetings[rank].host;
    });
    if (appears_twice(greetings, firsts))
        return "a node's ranks do not follow one another";
    for (uint32_t node = 0; node < grid->nodes; node++)
        if (grid->size_of(node) > TUCCL_MAX_RANKS)
            return "it serves at most " + std::to_string(TUCCL_MAX_RANKS) + " ranks of a node";
    if (grid->nodes == 1)
        return {};
    for (const Greeting &greeting : greetings)
        if (greeting.does_not_block != 0)
            return "it does not block; across nodes it serves communicators that do";
    if (shares_a_process(greetings))
        return "two of its ranks are in one process; across nodes it serves one rank per process";
    return {};
}

bool is_for(const tuccl_program &program, const Grid &grid) {
    if (program.header->nodes != grid.nodes || program.header->ranks != grid.ranks())
        return false;
    if (tuccl_program_is_uniform(program.header))
        return grid.has_equal_nodes();
    std::vector<uint32_t> sizes(grid.nodes);
    for (uint32_t rank = 0; rank < grid.ranks(); rank++)
        sizes[program.ranks[rank].node]++;
    for (uint32_t node = 0; node < grid.nodes; node++)
        if (sizes[node] != grid.size_of(node))
            return false;
    return true;
}

} // namespace tuccl
