// The entries of a bundle that are the executor's.
#ifndef TUCCL_EXECUTOR_BUNDLE_RULES_H
#define TUCCL_EXECUTOR_BUNDLE_RULES_H

#include "plan.h"

struct tuccl_bundle;
struct tuccl_entry_record;

namespace tuccl {

// An entry's rule for calls of an operation on so many ranks of one node; false where it is NCCL's:
// won by no schedule, or by one without a program for this. The bundle's programs are checked.
bool make_rule(const tuccl_entry_record &entry, const tuccl_bundle &bundle, uint32_t operation,
               uint32_t ranks, Rule *rule);

// Takes over rules and programs for a communicator of so many ranks on one node. Returns what is
// wrong, empty when nothing is.
//
// chooses: whether the process will choose what runs, so that programs are enough to be served.
std::string take_bundle_rules(const std::shared_ptr<const tuccl_bundle> &bundle, uint32_t ranks,
                              bool chooses, Plan *plan);

} // namespace tuccl

#endif
