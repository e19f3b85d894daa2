// The rules of a bundle's entries for the executor.
#ifndef TUCCL_EXECUTOR_BUNDLE_RULES_H
#define TUCCL_EXECUTOR_BUNDLE_RULES_H

#include "grid.h"
#include "plan.h"

struct tuccl_bundle;
struct tuccl_entry_record;

namespace tuccl {

// Sets an entry's rule for calls of an operation on such a communicator; false where NCCL serves
// the entry: no schedule won, or its program is missing or for other ranks or nodes. The bundle's
// programs must be checked.
bool make_rule(const tuccl_entry_record &entry, const tuccl_bundle &bundle, uint32_t operation,
               const Grid &grid, Rule *rule);

// Fits a rule to the bounds; false where it has more lanes than they allow.
bool keep_within(const ScheduleBounds &bounds, const void *programs, Rule *rule);

// Loads rules, within the plan's bounds, and programs for a communicator. Returns
// the fault, empty on success.
//
// chooses: whether the process will make choices per call, so that programs without rules suffice.
std::string take_bundle_rules(const std::shared_ptr<const tuccl_bundle> &bundle, const Grid &grid,
                              bool chooses, Plan *plan);

// Returns the most communicators of a rail that a program for such a communicator needs.
uint32_t most_lanes(const void *programs, const Grid &grid);

// Returns whether the bundle may have rules for a communicator of so many ranks, on any number of
// nodes.
bool has_rules_for(const tuccl_bundle &bundle, uint32_t ranks, bool chooses);

// Whether a schedule won an entry for several nodes; whether there is a program for several.
bool has_rules_across_nodes(const tuccl_bundle &bundle);
bool has_program_across_nodes(const tuccl_bundle &bundle);

} // namespace tuccl

#endif
