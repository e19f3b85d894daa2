// The entries of a bundle that are the executor's.
#ifndef TUCCL_EXECUTOR_BUNDLE_RULES_H
#define TUCCL_EXECUTOR_BUNDLE_RULES_H

#include "plan.h"

struct tuccl_bundle;

namespace tuccl {

// Takes over rules and programs for a communicator of so many ranks on one node. Returns what is
// wrong, empty when nothing is.
std::string take_bundle_rules(const tuccl_bundle &bundle, uint32_t ranks, Plan *plan);

} // namespace tuccl

#endif
