#include "mappings.h"

#include "device_exchange.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <dlfcn.h>
#include <system_error>

namespace tuccl {

namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == kIpcHandleBytes, "handles are told whole");
constexpr auto kPeriod = std::chrono::milliseconds(5);
constexpr int kPeriodsPerLook = 20; // For what is gone.
// CUdeviceptr and CUresult are this in every release.
using DevicePointer = unsigned long long;
constexpr int kBufferId = 7;     // CU_POINTER_ATTRIBUTE_BUFFER_ID
constexpr int kInvalidValue = 1; // CUDA_ERROR_INVALID_VALUE: it is in no allocation.

struct Driver {
    int (*MemGetAddressRange)(DevicePointer *, size_t *, DevicePointer);
    int (*PointerGetAttribute)(void *, int, DevicePointer);
};

// The runtime has no functions for these two.
const Driver *driver() {
    static const Driver found = [] {
        Driver driver = {};
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        if (library == nullptr)
            return driver;
        driver.MemGetAddressRange = reinterpret_cast<decltype(driver.MemGetAddressRange)>(
            dlsym(library, "cuMemGetAddressRange_v2"));
        driver.PointerGetAttribute = reinterpret_cast<decltype(driver.PointerGetAttribute)>(
            dlsym(library, "cuPointerGetAttribute"));
        return driver;
    }();
    return found.MemGetAddressRange != nullptr && found.PointerGetAttribute != nullptr ? &found
                                                                                       : nullptr;
}

// Allows what a capture in this or another thread would forbid.
class Relaxed {
  public:
    explicit Relaxed(int device) : entered_(tuccl_device_enter(device, &before_) == 0) {
    }
    ~Relaxed() {
        if (entered_)
            tuccl_device_leave(&before_);
        (void)cudaGetLastError();
    }
    Relaxed(const Relaxed &) = delete;
    Relaxed &operator=(const Relaxed &) = delete;

  private:
    tuccl_device_scope before_ = {};
    bool entered_;
};

} // namespace

const char *Mappings::create(uint32_t rank, const std::vector<ZeroCopyArea *> &areas) {
    const size_t ranks = areas.size();
    rank_ = rank;
    areas_ = areas;
    if (driver() == nullptr)
        return "the CUDA driver lacks cuMemGetAddressRange";
    const size_t table_bytes = sizeof(Mapping) * kMostMappings * ranks;
    void *table = nullptr;
    void *wanted = nullptr;
    void *there = nullptr;
    if (cudaGetDevice(&device_) != cudaSuccess || cudaMalloc(&table, table_bytes) != cudaSuccess)
        return "there is no memory for its mappings";
    table_ = static_cast<Mapping *>(table);
    if (cudaHostAlloc(&wanted, sizeof(Wanted) * ranks,
                      cudaHostAllocMapped | cudaHostAllocPortable) != cudaSuccess)
        return "there is no memory for its mappings";
    wanted_ = static_cast<Wanted *>(wanted);
    std::memset(wanted, 0, sizeof(Wanted) * ranks);
    if (cudaHostGetDevicePointer(&there, wanted, 0) != cudaSuccess ||
        cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess ||
        cudaMemsetAsync(table_, 0, table_bytes, stream_) != cudaSuccess ||
        cudaStreamSynchronize(stream_) != cudaSuccess)
        return "its mappings could not be cleared";
    wanted_there_ = static_cast<Wanted *>(there);
    closed_.resize(ranks);
    opened_.resize(ranks);
    try {
        thread_ = std::thread([this] { tend(); });
    } catch (const std::system_error &) {
        return "there is no thread for its mappings";
    }
    return nullptr;
}

Mappings::~Mappings() {
    if (thread_.joinable()) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            ends_ = true;
        }
        wake_.notify_all();
        thread_.join();
    }
    const Relaxed scope(device_);
    for (const auto &of_rank : opened_)
        for (const Mapping &mapping : of_rank)
            if (mapping.address != 0)
                (void)cudaIpcCloseMemHandle(reinterpret_cast<void *>(mapping.address));
    (void)cudaFree(table_);
    if (wanted_ != nullptr)
        (void)cudaFreeHost(wanted_);
    if (stream_ != nullptr)
        (void)cudaStreamDestroy(stream_);
}

std::vector<Mappings::Own>::iterator Mappings::forget(std::vector<Own>::iterator own) {
    if (own->shared)
        gone_.push_back(own->id);
    return own_.erase(own);
}

const Mappings::Own *Mappings::find_own(uint64_t address) {
    DevicePointer base = 0;
    size_t bytes = 0;
    DevicePointer id = 0;
    if (driver()->MemGetAddressRange(&base, &bytes, address) != 0 ||
        driver()->PointerGetAttribute(&id, kBufferId, base) != 0)
        return nullptr;
    const auto found =
        std::find_if(own_.begin(), own_.end(), [base](const Own &own) { return own.base == base; });
    if (found != own_.end() && found->id == id && found->bytes == bytes)
        return &*found;
    Own own = {base, bytes, id, false, {}};
    const Relaxed scope(device_);
    own.shared = cudaIpcGetMemHandle(&own.handle, reinterpret_cast<void *>(base)) == cudaSuccess;
    if (found != own_.end())
        (void)forget(found); // It was freed, and its addresses were given out again.
    own_.push_back(own);
    return &own_.back();
}

Place Mappings::place_of(const void *address, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto first = reinterpret_cast<uint64_t>(address);
    const Own *own = find_own(first);
    if (own == nullptr || !own->shared || first - own->base + bytes > own->bytes)
        return {};
    Place place = {own->id, first, first - own->base, {}};
    std::memcpy(place.handle, &own->handle, sizeof place.handle);
    return place;
}

void Mappings::open_wanted() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (uint32_t rank = 0; rank < opened_.size(); rank++) {
        Wanted &wanted = wanted_[rank];
        if (__atomic_load_n(&wanted.asks, __ATOMIC_ACQUIRE) == 0)
            continue;
        open(rank, wanted.place);
        __atomic_store_n(&wanted.asks, 0U, __ATOMIC_RELEASE);
    }
}

bool Mappings::write(void *to, const uint64_t &word) {
    return cudaMemcpyAsync(to, &word, sizeof word, cudaMemcpyDefault, stream_) == cudaSuccess &&
           cudaStreamSynchronize(stream_) == cudaSuccess;
}

// Nothing if it is open, or if the table is full.
void Mappings::open(uint32_t rank, const Place &place) {
    auto &opened = opened_[rank];
    const auto find = [&](uint64_t id) {
        return std::find_if(opened.begin(), opened.end(),
                            [id](const Mapping &one) { return one.id == id; });
    };
    if (find(place.id) != opened.end())
        return;
    const auto slot = find(0);
    if (slot == opened.end() && opened.size() == kMostMappings)
        return;
    const Relaxed scope(device_);
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, place.handle, sizeof handle);
    void *address = nullptr;
    if (cudaIpcOpenMemHandle(&address, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess)
        address = nullptr;
    const Mapping mapping = {place.id, reinterpret_cast<uint64_t>(address)};
    Mapping *there = table_ + rank * kMostMappings + (slot - opened.begin());
    if (slot == opened.end())
        opened.push_back(mapping);
    else
        *slot = mapping;
    // The id last: a kernel may look at this moment.
    if (write(&there->address, mapping.address))
        (void)write(&there->id, mapping.id);
}

void Mappings::tell_gone() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Relaxed scope(device_);
    for (auto own = own_.begin(); own != own_.end();) {
        DevicePointer id = 0;
        const int said = driver()->PointerGetAttribute(&id, kBufferId, own->base);
        const bool is_gone = said == kInvalidValue || (said == 0 && id != own->id);
        own = is_gone ? forget(own) : own + 1;
    }
    for (const uint64_t id : gone_) {
        const uint64_t count = told_gone_ + 1;
        for (uint32_t rank = 0; rank < areas_.size(); rank++) {
            ZeroCopyMail &mail = areas_[rank]->mail[rank_];
            if (rank != rank_ && write(&mail.gone[told_gone_ % kMostGone], id))
                (void)write(&mail.gone_count, count);
        }
        told_gone_ = count;
    }
    gone_.clear();
}

void Mappings::close(uint32_t rank, uint64_t id) {
    for (size_t i = 0; i < opened_[rank].size(); i++) {
        Mapping &mapping = opened_[rank][i];
        if (mapping.id != id)
            continue;
        // No kernel uses it: who frees memory has waited for the calls that it was in.
        (void)write(&table_[rank * kMostMappings + i].id, 0);
        if (mapping.address != 0)
            (void)cudaIpcCloseMemHandle(reinterpret_cast<void *>(mapping.address));
        mapping = {};
    }
}

void Mappings::close_gone() {
    const Relaxed scope(device_);
    std::vector<ZeroCopyMail> mail(areas_.size());
    if (cudaMemcpyAsync(mail.data(), areas_[rank_]->mail, mail.size() * sizeof mail[0],
                        cudaMemcpyDeviceToHost, stream_) != cudaSuccess ||
        cudaStreamSynchronize(stream_) != cudaSuccess)
        return;
    const std::lock_guard<std::mutex> lock(mutex_);
    for (uint32_t rank = 0; rank < mail.size(); rank++) {
        const uint64_t count = mail[rank].gone_count;
        // What the ring has lost stays open until the communicator ends.
        if (count > kMostGone)
            closed_[rank] = std::max(closed_[rank], count - kMostGone);
        for (; closed_[rank] < count; closed_[rank]++)
            close(rank, mail[rank].gone[closed_[rank] % kMostGone]);
    }
}

void Mappings::tend() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (int period = 1; !wake_.wait_for(lock, kPeriod, [this] { return ends_; }); period++) {
        lock.unlock();
        open_wanted();
        if (period % kPeriodsPerLook == 0) {
            tell_gone();
            close_gone();
        }
        lock.lock();
    }
}

} // namespace tuccl
