#include "peer_memory.h"

#include <cstring>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

namespace tuccl {

namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(MemoryHandle), "a handle must fit");

#if CUDA_VERSION >= 12030

static_assert(sizeof(CUmemFabricHandle) == sizeof(MemoryHandle), "a handle must fit");
constexpr CUmemAllocationHandleType kFabric = CU_MEM_HANDLE_TYPE_FABRIC;

// Of libcuda, which every driver brings; the runtime has no names for these.
struct Driver {
    decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
    decltype(&cuMemCreate) create = nullptr;
    decltype(&cuMemRelease) release = nullptr;
    decltype(&cuMemExportToShareableHandle) export_handle = nullptr;
    decltype(&cuMemImportFromShareableHandle) import_handle = nullptr;
    decltype(&cuMemAddressReserve) reserve = nullptr;
    decltype(&cuMemAddressFree) give_back = nullptr;
    decltype(&cuMemMap) map = nullptr;
    decltype(&cuMemUnmap) unmap = nullptr;
    decltype(&cuMemSetAccess) set_access = nullptr;
};

template <typename Function> bool find(void *library, const char *name, Function *function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    return *function != nullptr;
}

const Driver *driver() {
    static const Driver *const found = []() -> const Driver * {
        static Driver functions;
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr ||
            !find(library, "cuMemGetAllocationGranularity", &functions.granularity) ||
            !find(library, "cuMemCreate", &functions.create) ||
            !find(library, "cuMemRelease", &functions.release) ||
            !find(library, "cuMemExportToShareableHandle", &functions.export_handle) ||
            !find(library, "cuMemImportFromShareableHandle", &functions.import_handle) ||
            !find(library, "cuMemAddressReserve", &functions.reserve) ||
            !find(library, "cuMemAddressFree", &functions.give_back) ||
            !find(library, "cuMemMap", &functions.map) ||
            !find(library, "cuMemUnmap", &functions.unmap) ||
            !find(library, "cuMemSetAccess", &functions.set_access))
            return nullptr;
        return &functions;
    }();
    return found;
}

CUmemLocation location_of(int device) {
    CUmemLocation location = {};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = device;
    return location;
}

// Maps memory, which lives as long as a mapping of it does; drops the handle. 0: it failed.
CUdeviceptr map(const Driver &cuda, CUmemGenericAllocationHandle memory, size_t bytes, int device) {
    CUdeviceptr address = 0;
    CUmemAccessDesc access = {};
    access.location = location_of(device);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (cuda.reserve(&address, bytes, 0, 0, 0) != CUDA_SUCCESS) {
        address = 0;
    } else if (cuda.map(address, bytes, 0, memory, 0) != CUDA_SUCCESS) {
        (void)cuda.give_back(address, bytes);
        address = 0;
    } else if (cuda.set_access(address, bytes, &access, 1) != CUDA_SUCCESS) {
        (void)cuda.unmap(address, bytes);
        (void)cuda.give_back(address, bytes);
        address = 0;
    }
    (void)cuda.release(memory);
    return address;
}

const char *allocate_fabric(size_t count, MemoryHandle *handle, PeerMemory *memory) {
    const Driver *cuda = driver();
    int device = 0;
    if (cuda == nullptr || cudaGetDevice(&device) != cudaSuccess)
        return "its driver has no fabric handles, by which hosts share memory over NVLink";
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = location_of(device);
    prop.requestedHandleTypes = kFabric;
    size_t grain = 0;
    CUmemGenericAllocationHandle made = 0;
    if (cuda->granularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) != CUDA_SUCCESS ||
        grain == 0)
        return "its device has no memory that hosts share over NVLink";
    const size_t bytes = (count + grain - 1) / grain * grain;
    if (cuda->create(&made, bytes, &prop, 0) != CUDA_SUCCESS)
        return "there is no device memory that hosts share over NVLink (is IMEX set up?)";
    const bool is_exported = cuda->export_handle(handle->bytes, made, kFabric, 0) == CUDA_SUCCESS;
    const CUdeviceptr address = map(*cuda, made, bytes, device);
    *memory = {reinterpret_cast<void *>(address), bytes, true, true};
    if (address == 0 || !is_exported) {
        memory->close();
        return "its staging area cannot be shared over NVLink (is IMEX set up?)";
    }
    return nullptr;
}

const char *open_fabric(const MemoryHandle &handle, size_t count, PeerMemory *memory) {
    const Driver *cuda = driver();
    int device = 0;
    MemoryHandle given = handle;
    CUmemGenericAllocationHandle opened = 0;
    if (cuda == nullptr || cudaGetDevice(&device) != cudaSuccess ||
        cuda->import_handle(&opened, given.bytes, kFabric) != CUDA_SUCCESS)
        return "memory of another host cannot be reached over NVLink (is IMEX set up?)";
    const CUdeviceptr address = map(*cuda, opened, count, device);
    if (address == 0)
        return "memory of another host could not be mapped";
    *memory = {reinterpret_cast<void *>(address), count, true, false};
    return nullptr;
}

void close_fabric(const PeerMemory &memory) {
    const auto address = reinterpret_cast<CUdeviceptr>(memory.address);
    (void)cudaDeviceSynchronize(); // As cudaFree does.
    (void)driver()->unmap(address, memory.bytes);
    (void)driver()->give_back(address, memory.bytes);
}

#else

constexpr const char *kNoFabric =
    "it was built by a CUDA before 12.3, whose memory one host alone can map";

const char *allocate_fabric(size_t, MemoryHandle *, PeerMemory *) {
    return kNoFabric;
}
const char *open_fabric(const MemoryHandle &, size_t, PeerMemory *) {
    return kNoFabric;
}
void close_fabric(const PeerMemory &) {
}

#endif

} // namespace

const char *PeerMemory::allocate(size_t count, bool spans_hosts, MemoryHandle *handle) {
    if (spans_hosts)
        return allocate_fabric(count, handle, this);
    if (cudaMalloc(&address, count) != cudaSuccess) {
        address = nullptr;
        return "there is no device memory for its staging area";
    }
    bytes = count;
    is_own = true;
    cudaIpcMemHandle_t made = {};
    if (cudaIpcGetMemHandle(&made, address) != cudaSuccess) {
        close();
        return "its staging area cannot be shared (no IPC)";
    }
    std::memcpy(handle->bytes, &made, sizeof made);
    return nullptr;
}

const char *PeerMemory::open(const MemoryHandle &handle, size_t count, bool spans_hosts) {
    if (spans_hosts)
        return open_fabric(handle, count, this);
    cudaIpcMemHandle_t given = {};
    std::memcpy(&given, handle.bytes, sizeof given);
    if (cudaIpcOpenMemHandle(&address, given, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess) {
        address = nullptr;
        return "memory of another process's device cannot be reached (no P2P, or no IPC)";
    }
    bytes = count;
    return nullptr;
}

void PeerMemory::close() {
    if (address == nullptr)
        return;
    if (is_fabric)
        close_fabric(*this);
    else if (is_own)
        (void)cudaFree(address);
    else
        (void)cudaIpcCloseMemHandle(address);
    address = nullptr;
}

} // namespace tuccl
