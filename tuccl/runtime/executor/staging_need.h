// How much staging memory a communicator needs: only as much as its table's entries require,
// because a job creates many communicators, and the maximum is 233 MiB of each.
#ifndef TUCCL_EXECUTOR_STAGING_NEED_H
#define TUCCL_EXECUTOR_STAGING_NEED_H

#include "decision.h"
#include "grid.h"

namespace tuccl {

// Returns the need of the rules of a communicator; `programs` is a sound section of a bundle, NULL
// without programs.
tuccl_staging staging_need(const Decision &decision, const void *programs, const Grid &grid);

// Most memory between phases. Calls that need more are NCCL's.
constexpr uint64_t kMostScratchBytes = uint64_t{256} << 20;
// Returns the memory between phases that the rules of a communicator across nodes need.
uint64_t scratch_need(const Decision &decision, const void *programs);
// Returns the communicators that they need, and those that one rule needs.
NetworkNeed network_need(const Decision &decision, const void *programs);
NetworkNeed network_need_of(const Rule &rule, const void *programs);

// Returns the need of any rule; with 0 ranks without that of patterns, which serve equal nodes.
tuccl_staging most_staging(uint32_t ranks);

// Returns the bytes of a rank, before rounding.
uint64_t staging_bytes(const tuccl_staging &staging, uint32_t ranks);

} // namespace tuccl

#endif
