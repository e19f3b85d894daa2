// What trials in the job need of CUDA: events, and copies to and from the host.
#include "executor.h"

#include <algorithm>
#include <cuda_runtime_api.h>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace {

struct FreeDevice {
    void operator()(char *memory) const {
        (void)cudaFree(memory);
    }
};
struct FreeHost {
    void operator()(char *memory) const {
        (void)cudaFreeHost(memory);
    }
};

} // namespace

struct tuccl_trials {
    tuccl_trials_need need;
    int device;
    std::unique_ptr<char, FreeDevice> memory; // Of each slot: bytes to send, then those of all.
    std::unique_ptr<char, FreeHost> host;     // Likewise.
    std::vector<cudaEvent_t> marks;           // Of each slot, and then one for what it received.

    ~tuccl_trials() {
        for (const cudaEvent_t mark : marks)
            (void)cudaEventDestroy(mark);
    }
    size_t slot_bytes() const {
        return size_t{need.bytes} * (need.ranks + 1);
    }
    char *device_slot(uint32_t slot) const {
        return memory.get() + slot * slot_bytes();
    }
    char *host_slot(uint32_t slot) const {
        return host.get() + slot * slot_bytes();
    }
    cudaEvent_t mark(uint32_t slot, uint32_t number) const {
        return marks[slot * size_t{need.marks + 1} + number];
    }
    cudaEvent_t received(uint32_t slot) const {
        return mark(slot, need.marks);
    }
    bool suits(const tuccl_trials_need &wanted, int wanted_device) const {
        return device == wanted_device && need.slots == wanted.slots &&
               need.marks == wanted.marks && need.bytes == wanted.bytes &&
               need.ranks == wanted.ranks;
    }
};

namespace {

// Those of communicators that have ended. They are never destroyed: the process may end first.
struct Retired {
    std::mutex mutex;
    std::vector<tuccl_trials *> all;
};
Retired &retired() {
    static auto *const only = new Retired;
    return *only;
}

// A returned error must not show again in cudaGetLastError.
cudaError_t told(cudaError_t error) {
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return error;
}

// Whether nothing that was put for it is still to come; an event that was never put has come.
bool is_idle(const tuccl_trials &trials) {
    return std::all_of(trials.marks.begin(), trials.marks.end(),
                       [](cudaEvent_t mark) { return told(cudaEventQuery(mark)) == cudaSuccess; });
}

tuccl_trials *take_retired(const tuccl_trials_need &need, int device) {
    Retired &known = retired();
    const std::lock_guard<std::mutex> lock(known.mutex);
    for (auto found = known.all.begin(); found != known.all.end(); ++found)
        if ((*found)->suits(need, device) && is_idle(**found)) {
            tuccl_trials *trials = *found;
            known.all.erase(found);
            return trials;
        }
    return nullptr;
}

bool fill(tuccl_trials *trials) {
    const size_t bytes = trials->need.slots * trials->slot_bytes();
    void *memory = nullptr;
    if (cudaMalloc(&memory, bytes) != cudaSuccess)
        return false;
    trials->memory.reset(static_cast<char *>(memory));
    if (cudaHostAlloc(&memory, bytes, cudaHostAllocDefault) != cudaSuccess)
        return false;
    trials->host.reset(static_cast<char *>(memory));
    const size_t marks = trials->need.slots * size_t{trials->need.marks + 1};
    while (trials->marks.size() < marks) {
        cudaEvent_t mark = nullptr;
        if (cudaEventCreate(&mark) != cudaSuccess)
            return false;
        trials->marks.push_back(mark);
    }
    return true;
}

} // namespace

const char *tuccl_trials_create(struct tuccl_trials **trials,
                                const struct tuccl_trials_need *need) {
    int device = 0;
    *trials = nullptr;
    if (cudaGetDevice(&device) == cudaSuccess && (*trials = take_retired(*need, device)) != nullptr)
        return nullptr;
    std::unique_ptr<tuccl_trials> made(new (std::nothrow) tuccl_trials{*need, device, {}, {}, {}});
    if (made != nullptr && fill(made.get())) {
        *trials = made.release();
        return nullptr;
    }
    (void)cudaGetLastError();
    return "its trials have no memory, or no events";
}

int tuccl_trials_mark(struct tuccl_trials *trials, uint32_t slot, uint32_t mark, void *stream) {
    return told(cudaEventRecord(trials->mark(slot, mark), static_cast<cudaStream_t>(stream)));
}

float tuccl_trials_us_after(const struct tuccl_trials *trials, uint32_t slot, uint32_t mark) {
    float time_ms = 0.0f;
    const cudaError_t state = told(
        cudaEventElapsedTime(&time_ms, trials->mark(slot, mark), trials->mark(slot, mark + 1)));
    return state == cudaSuccess ? 1e3f * time_ms : -1.0f;
}

unsigned char *tuccl_trials_bytes(const struct tuccl_trials *trials, uint32_t slot) {
    return reinterpret_cast<unsigned char *>(trials->host_slot(slot));
}

int tuccl_trials_write(struct tuccl_trials *trials, uint32_t slot, void *stream) {
    return told(cudaMemcpyAsync(trials->device_slot(slot), trials->host_slot(slot),
                                trials->need.bytes, cudaMemcpyHostToDevice,
                                static_cast<cudaStream_t>(stream)));
}

struct tuccl_trials_view tuccl_trials_view(const struct tuccl_trials *trials, uint32_t slot) {
    return {trials->device_slot(slot), trials->device_slot(slot) + trials->need.bytes};
}

int tuccl_trials_read(struct tuccl_trials *trials, uint32_t slot, void *stream) {
    const auto on = static_cast<cudaStream_t>(stream);
    const cudaError_t error = cudaMemcpyAsync(trials->host_slot(slot) + trials->need.bytes,
                                              trials->device_slot(slot) + trials->need.bytes,
                                              size_t{trials->need.bytes} * trials->need.ranks,
                                              cudaMemcpyDeviceToHost, on);
    return told(error != cudaSuccess ? error : cudaEventRecord(trials->received(slot), on));
}

int tuccl_trials_came(const struct tuccl_trials *trials, uint32_t slot) {
    const cudaError_t state = told(cudaEventQuery(trials->received(slot)));
    return state == cudaSuccess ? 1 : state == cudaErrorNotReady ? 0 : -1;
}

void tuccl_trials_retire(struct tuccl_trials *trials) {
    if (trials == nullptr)
        return;
    Retired &known = retired();
    const std::lock_guard<std::mutex> lock(known.mutex);
    known.all.push_back(trials);
}
