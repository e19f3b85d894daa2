// This rank's plan for a communicator, from its environment and bundle alone.
#ifndef TUCCL_EXECUTOR_PLAN_H
#define TUCCL_EXECUTOR_PLAN_H

#include "decision.h"
#include "grid.h"
#include "nccl_config.h"

#include <memory>
#include <string>

struct tuccl_bundle;
struct tuccl_entry_record;

namespace tuccl {

// The table that a rank's environment names, read once, so that it cannot change between uses.
struct Table {
    bool wanted = false;  // Whether the executor is requested.
    bool chooses = false; // Whether this process makes choices per call (choose.h).
    uint32_t sum = 0;     // CRC of the bundle; ranks must agree on it.
    std::string source;   // Name for the log.
    std::string fault;    // Why this rank cannot serve; empty if it can.
    std::shared_ptr<const tuccl_bundle> bundle;
    uint16_t check_ms = 0;   // Time for the check at start; 0: nothing is checked.
    std::string check_fault; // Why not, although TUCCL_CHECK is set.
    bool guards = false;     // Whether TUCCL_GUARD or TUCCL_LEARN asks for the guard.
    std::string guard_fault; // Why not, although TUCCL_GUARD is set.
    bool learns = false;     // Whether TUCCL_LEARN asks for it.
    std::string learn_fault; // As above.
    uint32_t gpus_here = 0;  // GPUs of the table's models on this host; 0: unknown.

    // Mark that is equal on ranks whose tables lead to equal plans for any communicator.
    uint64_t mark() const;

    // Whether entries count that the executor does not serve.
    bool has_trials() const {
        return check_ms > 0 || guards;
    }

    // Returns whether it has something for the executor, settings, or entries to check or guard, on
    // communicators of several hosts: those of several nodes, or of a node with more GPUs than this
    // host, which is an NVLink domain.
    bool may_span_hosts() const;
    // Returns whether it may have rules, settings, or entries to check, for a communicator of so
    // many ranks, on any number of nodes.
    bool may_serve(uint32_t ranks) const;
};

std::shared_ptr<const Table> read_table();

struct Plan {
    std::shared_ptr<const Table> table; // NULL where no call needs it any more.
    std::string fault;                  // Why this rank cannot serve; empty if it can.
    bool chooses = false;               // As in the table.
    // Of the table's bundle, checked; NULL if it has nothing for the communicator.
    const void *programs = nullptr;
    ScheduleBounds bounds; // Of choices; the decision is within them.
    Decision decision;
    tuccl_staging staging = {};     // Staging memory for the decision's calls, or for any.
    uint64_t scratch_bytes = 0;     // Memory between phases; 0 on one node.
    NetworkNeed network;            // For the decision's calls.
    uint32_t most_lanes = 0;        // For any choice.
    size_t rules_of_many_lanes = 0; // Ranges of the table that are beyond the bound of lanes.

    // Before the ranks' nodes are known there are no rules.
    static Plan of(std::shared_ptr<const Table> table);

    // Lanes with streams of their own.
    uint32_t stream_lanes() const {
        return most_lanes > 0 ? most_lanes : 1;
    }
};

// `bounds`: that all ranks allow.
Plan make_plan(const std::shared_ptr<const Table> &table, const Grid &grid,
               const ScheduleBounds &bounds);

// Sets an entry's rule for calls of an operation on such a communicator; false where NCCL serves
// the entry: no schedule won, or its program is missing or for other ranks or nodes. `programs`: a
// checked section.
bool make_rule(const tuccl_entry_record &entry, const void *programs, uint32_t operation,
               const Grid &grid, Rule *rule);

// Fits a rule to the bounds; false where it has more lanes than they allow.
bool keep_within(const ScheduleBounds &bounds, const void *programs, Rule *rule);

} // namespace tuccl

#endif
