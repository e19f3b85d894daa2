#include "nvlink.h"

#include <cstdio>
#include <dlfcn.h>

namespace tuccl {

namespace {

using NvmlDevice = void *;
constexpr unsigned kMostLinks = 36; // NVML_NVLINK_MAX_LINKS
constexpr int kIsGpu = 0;           // NVML_NVLINK_DEVICE_TYPE_GPU
constexpr int kIsSwitch = 2;        // NVML_NVLINK_DEVICE_TYPE_SWITCH
constexpr unsigned kHiddenBus = 0xFF;

// nvmlPciInfo_t.
struct NvmlPciInfo {
    char legacy_bus_id[16];
    unsigned domain;
    unsigned bus;
    unsigned device;
    unsigned device_id;
    unsigned subsystem_id;
    char bus_id[32];
};

// Of libnvidia-ml, which every driver brings (nvml.h of CUDA 12 and 13 agree on these).
struct Nvml {
    int (*init)() = nullptr;
    int (*by_bus_id)(const char *bus_id, NvmlDevice *device) = nullptr;
    int (*link_state)(NvmlDevice device, unsigned link, int *is_active) = nullptr;
    int (*remote_type)(NvmlDevice device, unsigned link, int *type) = nullptr;
    int (*remote_address)(NvmlDevice device, unsigned link, NvmlPciInfo *info) = nullptr;
};

template <typename Function> bool find(void *library, const char *name, Function *function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    return *function != nullptr;
}

const Nvml *nvml() {
    static const Nvml *const found = []() -> const Nvml * {
        static Nvml functions;
        void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr || !find(library, "nvmlInit_v2", &functions.init) ||
            !find(library, "nvmlDeviceGetHandleByPciBusId_v2", &functions.by_bus_id) ||
            !find(library, "nvmlDeviceGetNvLinkState", &functions.link_state) ||
            !find(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", &functions.remote_address) ||
            functions.init() != 0)
            return nullptr;
        (void)find(library, "nvmlDeviceGetNvLinkRemoteDeviceType", &functions.remote_type);
        return &functions;
    }();
    return found;
}

uint32_t address_of(unsigned domain, unsigned bus) {
    return domain << 8 | bus;
}

void add_neighbour(uint32_t address, NvlinkEnds *ends) {
    for (uint32_t &neighbour : ends->neighbours)
        if (neighbour == address || neighbour == 0) {
            neighbour = address;
            return;
        }
}

void add_link(const Nvml &functions, NvmlDevice device, unsigned link, NvlinkEnds *ends) {
    int is_active = 0;
    if (functions.link_state(device, link, &is_active) != 0 || is_active == 0)
        return;
    int type = -1;
    if (functions.remote_type == nullptr || functions.remote_type(device, link, &type) != 0)
        type = -1;
    NvmlPciInfo remote = {};
    const bool has_address = functions.remote_address(device, link, &remote) == 0;
    // NVML hides some switches behind an address that no device has.
    if (type == kIsSwitch || (type != kIsGpu && has_address && remote.bus == kHiddenBus))
        ends->has_switch = 1;
    else if (has_address)
        add_neighbour(address_of(remote.domain, remote.bus), ends);
}

} // namespace

NvlinkEnds nvlink_ends(const char *bus_id) {
    NvlinkEnds ends = {};
    unsigned domain = 0;
    unsigned bus = 0;
    if (std::sscanf(bus_id, "%x:%x:", &domain, &bus) == 2)
        ends.own = address_of(domain, bus);
    const Nvml *functions = nvml();
    NvmlDevice device = nullptr;
    if (functions == nullptr || functions->by_bus_id(bus_id, &device) != 0)
        return ends;
    for (unsigned link = 0; link < kMostLinks; link++)
        add_link(*functions, device, link, &ends);
    return ends;
}

} // namespace tuccl
