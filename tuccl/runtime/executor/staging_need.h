// How much staging memory a communicator needs: what its table's entries ask for, because a job
// makes many communicators, and the most that anything may ask for is 233 MiB of each.
#ifndef TUCCL_EXECUTOR_STAGING_NEED_H
#define TUCCL_EXECUTOR_STAGING_NEED_H

#include "decision.h"

namespace tuccl {

// For the rules of a communicator of so many ranks, whose programs are in `programs`, a sound
// section of a bundle; NULL where there is none.
tuccl_staging staging_need(const Decision &decision, const void *programs, uint32_t ranks);

// For any rule.
tuccl_staging most_staging(uint32_t ranks);

// Bytes of a rank, but for rounding.
uint64_t staging_bytes(const tuccl_staging &staging, uint32_t ranks);

} // namespace tuccl

#endif
