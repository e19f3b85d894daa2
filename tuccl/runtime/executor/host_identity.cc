#include "host_identity.h"

#include <cstdlib>
#include <fstream>
#include <sched.h>
#include <string>
#include <sys/utsname.h>

namespace tuccl {

namespace {

uint64_t hash_of(const std::string &text) {
    uint64_t hash = 0xcbf29ce484222325U; // FNV-1a.
    for (const char character : text)
        hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3U;
    return hash;
}

std::string kernel() {
    // No namespace changes the boot id. Virtual machines resumed from one snapshot share it: there
    // kernels differ at times, and opening each other's memory fails always.
    std::string text;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
    utsname named = {};
    if (uname(&named) == 0) {
        text += std::string("\n") + named.release + "\n" + named.version;
        if (text.front() == '\n')
            text += std::string("\n") + named.nodename;
    }
    return text;
}

} // namespace

uint64_t kernel_identity() {
    return hash_of(kernel());
}

uint64_t host_identity() {
    const char *given = std::getenv("NCCL_HOSTID");
    return hash_of(given != nullptr ? kernel() + "\n" + given : kernel());
}

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
