// The nodes of a communicator and this rank's place among them.
#ifndef TUCCL_EXECUTOR_GRID_H
#define TUCCL_EXECUTOR_GRID_H

#include "agreement.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tuccl {

// Nodes have equal numbers of ranks; rank = node * local_ranks + local. The ranks with equal
// `local` form a rail.
struct Grid {
    uint32_t nodes;
    uint32_t local_ranks;
    uint32_t node;
    uint32_t local;

    uint32_t ranks() const {
        return nodes * local_ranks;
    }
    uint32_t first_of_node() const {
        return node * local_ranks;
    }
};

// Finds the grid from all ranks' greetings. Returns why the executor cannot serve it, empty if it
// can; the same on every rank.
std::string find_grid(const std::vector<Greeting> &greetings, uint32_t rank, Grid *grid);

} // namespace tuccl

#endif
