// The nodes of a communicator and this rank's place among them.
#ifndef TUCCL_EXECUTOR_GRID_H
#define TUCCL_EXECUTOR_GRID_H

#include "agreement.h"
#include "program_layout.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tuccl {

// The communicators that schedules across hosts split from the job's.
struct NetworkNeed {
    uint32_t lanes = 0;       // Of each rail.
    uint32_t round_lanes = 0; // Of all ranks, for sends and receives.
};

// A node is a host, or an NVLink domain of several. Its ranks follow one another, as nodes do.
// Where all nodes have equal numbers of ranks, the ranks with equal `local` form a rail.
struct Grid {
    uint32_t nodes;
    uint32_t local_ranks; // Of this rank's node.
    uint32_t node;
    uint32_t local;
    // The first rank of each node, and the number of all ranks; empty: nodes are equal.
    std::vector<uint32_t> firsts = {};
    bool spans_hosts = false; // Whether this rank's node does.

    bool has_equal_nodes() const {
        return firsts.empty();
    }
    uint32_t ranks() const {
        return firsts.empty() ? nodes * local_ranks : firsts.back();
    }
    uint32_t rank() const {
        return first_of_node() + local;
    }
    uint32_t first_of_node() const {
        return firsts.empty() ? node * local_ranks : firsts[node];
    }
    // As in the bundle: 0 where nodes differ.
    uint32_t ranks_per_node() const {
        return firsts.empty() ? local_ranks : 0;
    }
    uint32_t size_of(uint32_t a_node) const {
        return firsts.empty() ? local_ranks : firsts[a_node + 1] - firsts[a_node];
    }
};

// Finds the grid from all ranks' greetings: hosts, and those whose ranks are of one team of NCCL's
// are one node. A team is of ranks that share memory over NVLink (ncclTeamLsa), all teams have as
// many, and across hosts NCCL opens such memory by fabric handles alone. Returns why the executor
// cannot serve it, empty if it can; the same on every rank.
std::string find_grid(const std::vector<Greeting> &greetings, uint32_t rank, Grid *grid);

// Whether a program is for the nodes of a communicator.
bool is_for(const tuccl_program &program, const Grid &grid);

} // namespace tuccl

#endif
