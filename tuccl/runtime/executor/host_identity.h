// Numbers that are equal for two processes exactly if they run under one kernel, whatever their
// containers.
#ifndef TUCCL_EXECUTOR_HOST_IDENTITY_H
#define TUCCL_EXECUTOR_HOST_IDENTITY_H

#include <cstdint>

namespace tuccl {

// The same for all processes under one kernel.
uint64_t kernel_identity();

// NCCL_HOSTID counts: a host that it divides into nodes is divided for the executor as well.
uint64_t host_identity();

} // namespace tuccl

#endif
