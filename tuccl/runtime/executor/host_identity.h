// Numbers that are equal for two processes exactly if they run under one kernel, whatever their
// containers.
#ifndef TUCCL_EXECUTOR_HOST_IDENTITY_H
#define TUCCL_EXECUTOR_HOST_IDENTITY_H

#include <cstddef>
#include <cstdint>

namespace tuccl {

// The same for all processes under one kernel.
uint64_t kernel_identity();

// NCCL_HOSTID counts: a host that it divides into nodes is divided for the executor as well.
uint64_t host_identity();

// The cores that a process may run on, which lanes need: each lane of a rank has a thread of NCCL's
// that polls the network.
//
// With more of these threads than cores, one that has data waits for others that have none until
// the kernel's next tick: 4 ms, in each of a call's slices (docs/lab/across-hosts.md).
struct Cores {
    uint16_t count;
    uint32_t set; // Equal for processes of one host that may run on the same ones.
};

Cores cores_here();

// Threads of a rank that compute or wait for the device beside its lanes: the job's own, and one
// for the rest, such as the network thread of another communicator. As in tuccl/measuring/cores.py.
constexpr uint16_t kCoresBesideLanes = 2;

// Returns the lanes that a rank's share of its cores can drive, at least one. `sharers`: ranks that
// have the same cores, this one included.
inline uint16_t lanes_on(const Cores &cores, size_t sharers) {
    const size_t share = cores.count / sharers;
    return share > kCoresBesideLanes ? static_cast<uint16_t>(share - kCoresBesideLanes) : 1;
}

} // namespace tuccl

#endif
