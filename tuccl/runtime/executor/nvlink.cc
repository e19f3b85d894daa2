#include "nvlink.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

namespace {

using NvmlDevice = void *;
constexpr unsigned kMostLinks = 18;
constexpr int kBusIdLength = 32;

// Of libnvidia-ml, which every driver brings (nvml.h of CUDA 12 and 13 agree on these).
struct Nvml {
    int (*init)() = nullptr;
    int (*by_bus_id)(const char *bus_id, NvmlDevice *device) = nullptr;
    int (*link_state)(NvmlDevice device, unsigned link, int *is_active) = nullptr;
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
            functions.init() != 0)
            return nullptr;
        return &functions;
    }();
    return found;
}

} // namespace

bool tuccl::has_active_nvlink(int cuda_device) {
    const Nvml *functions = nvml();
    char bus_id[kBusIdLength];
    NvmlDevice device = nullptr;
    if (functions == nullptr ||
        cudaDeviceGetPCIBusId(bus_id, kBusIdLength, cuda_device) != cudaSuccess ||
        functions->by_bus_id(bus_id, &device) != 0)
        return false;
    for (unsigned link = 0; link < kMostLinks; link++) {
        int is_active = 0;
        if (functions->link_state(device, link, &is_active) == 0 && is_active != 0)
            return true;
    }
    return false;
}
