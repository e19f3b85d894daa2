// The rules of a bundle's entries for the executor.
#ifndef TUCCL_EXECUTOR_BUNDLE_RULES_H
#define TUCCL_EXECUTOR_BUNDLE_RULES_H

#include "plan.h"

struct tuccl_bundle;
struct tuccl_entry_record;

namespace tuccl {

// Sets an entry's rule for calls of an operation on `ranks` ranks of one node; false where NCCL
// serves the entry: no schedule won, or its program is missing or for other ranks. The bundle's
// programs must be checked.
bool make_rule(const tuccl_entry_record &entry, const tuccl_bundle &bundle, uint32_t operation,
               uint32_t ranks, Rule *rule);

// Loads rules and programs for a communicator of `ranks` ranks on one node. Returns the fault,
// empty on success.
//
// chooses: whether the process will make choices per call, so that programs without rules suffice.
std::string take_bundle_rules(const std::shared_ptr<const tuccl_bundle> &bundle, uint32_t ranks,
                              bool chooses, Plan *plan);

} // namespace tuccl

#endif
