#include "cores.h"

#include "host_identity.h"

#include <sched.h>

namespace tuccl {

Cores cores_here() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    // Fails on hosts with more cores than the set holds.
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return {CPU_SETSIZE, static_cast<uint32_t>(kernel_identity())};
    uint64_t hash = kernel_identity();
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed))
            hash = (hash ^ static_cast<uint64_t>(core)) * 0x100000001b3U; // FNV-1a.
    return {static_cast<uint16_t>(CPU_COUNT(&allowed)), static_cast<uint32_t>(hash ^ hash >> 32U)};
}

} // namespace tuccl
