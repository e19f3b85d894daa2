// Mappings of two ranks over a CUDA whose devices are host memory: what one tells, the other opens.
//
//   drive_mappings
#include "device_exchange.h"
#include "mappings.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

extern "C" {
void stand_in_allocate(unsigned long long base, size_t bytes, unsigned long long id);
void stand_in_free(unsigned long long base);
int tuccl_device_enter(int, struct tuccl_device_scope *) {
    return 0;
}
void tuccl_device_leave(const struct tuccl_device_scope *) {
}
}

namespace {

constexpr uint64_t kPool = 0x7000000000; // Memory that IPC does not know.
std::mutex cuda;
std::multiset<uint64_t> opened; // Bases, each opened so often.
bool may_open = true;

} // namespace

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaGetLastError() {
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **memory, size_t bytes) {
    *memory = std::malloc(bytes);
    return cudaSuccess;
}
cudaError_t cudaFree(void *memory) {
    std::free(memory);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned) {
    return cudaMalloc(memory, bytes);
}
cudaError_t cudaHostGetDevicePointer(void **there, void *memory, unsigned) {
    *there = memory;
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *memory) {
    return cudaFree(memory);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
    *stream = nullptr;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t) {
    std::memset(memory, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
    const std::lock_guard<std::mutex> lock(cuda);
    std::memcpy(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory) {
    const auto base = reinterpret_cast<uint64_t>(memory);
    if (base >= kPool)
        return cudaErrorInvalidValue;
    std::memset(handle, 0, sizeof *handle);
    std::memcpy(handle, &base, sizeof base);
    return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned) {
    const std::lock_guard<std::mutex> lock(cuda);
    uint64_t base = 0;
    std::memcpy(&base, &handle, sizeof base);
    if (!may_open)
        return cudaErrorMapBufferObjectFailed;
    opened.insert(base);
    *memory = reinterpret_cast<void *>(base);
    return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void *memory) {
    const std::lock_guard<std::mutex> lock(cuda);
    const auto found = opened.find(reinterpret_cast<uint64_t>(memory));
    if (found == opened.end())
        return cudaErrorInvalidValue;
    opened.erase(found);
    return cudaSuccess;
}

namespace {

using tuccl::Mapping;
using tuccl::Mappings;
using tuccl::Place;

void expect(bool holds, const char *what) {
    if (holds)
        return;
    std::printf("%s\n", what);
    std::_Exit(1);
}

size_t opened_now() {
    const std::lock_guard<std::mutex> lock(cuda);
    return opened.size();
}

// Two ranks with areas in memory.
struct Pair {
    std::vector<std::unique_ptr<tuccl::ZeroCopyArea, void (*)(void *)>> areas;
    Mappings mappings[2];

    Pair() {
        std::vector<tuccl::ZeroCopyArea *> all;
        for (int rank = 0; rank < 2; rank++) {
            auto *area = static_cast<tuccl::ZeroCopyArea *>(
                std::aligned_alloc(64, sizeof(tuccl::ZeroCopyArea)));
            std::memset(static_cast<void *>(area), 0, sizeof *area);
            areas.emplace_back(area, std::free);
            all.push_back(area);
        }
        for (uint32_t rank = 0; rank < 2; rank++)
            expect(mappings[rank].create(rank, all) == nullptr, "mappings can be made");
    }

    // As a kernel of rank 1 that did not find rank 0's allocation.
    void ask(const Place &place) {
        tuccl::Wanted &wanted = mappings[1].wanted()[0];
        while (__atomic_load_n(&wanted.asks, __ATOMIC_ACQUIRE) != 0)
            std::this_thread::yield();
        wanted.place = place;
        __atomic_store_n(&wanted.asks, 1U, __ATOMIC_RELEASE);
        while (__atomic_load_n(&wanted.asks, __ATOMIC_ACQUIRE) != 0)
            std::this_thread::yield(); // Its thread opens it.
    }

    const Mapping *find(uint64_t id) {
        const Mapping *table = mappings[1].on_device();
        for (uint32_t i = 0; i < tuccl::kMostMappings; i++)
            if (table[i].id == id)
                return &table[i];
        return nullptr;
    }
};

void tells_places() {
    Pair pair;
    stand_in_allocate(0x1000, 0x1000, 7);
    stand_in_allocate(kPool, 0x1000, 8);
    const auto at = [&](uint64_t address, size_t bytes) {
        return pair.mappings[0].place_of(reinterpret_cast<void *>(address), bytes);
    };
    const Place place = at(0x1100, 0xF00);
    expect(place.id == 7 && place.offset == 0x100 && place.address == 0x1100, "a place is told");
    expect(at(0x1100, 0xF01).id == 0, "what goes beyond its allocation is not");
    expect(at(kPool + 16, 16).id == 0, "nor what IPC does not know");
    expect(at(0x9000, 16).id == 0, "nor what the driver does not know");
    stand_in_free(0x1000);
    stand_in_allocate(0x1000, 0x1000, 9);
    expect(at(0x1100, 16).id == 9, "an address that is given out again is another allocation");
    stand_in_free(0x1000);
    stand_in_free(kPool);
}

void opens_and_closes() {
    {
        Pair pair;
        stand_in_allocate(0x1000, 0x1000, 7);
        stand_in_allocate(0x2000, 0x1000, 8);
        pair.ask(pair.mappings[0].place_of(reinterpret_cast<void *>(0x1000), 16));
        pair.ask(pair.mappings[0].place_of(reinterpret_cast<void *>(0x1010), 16));
        expect(opened_now() == 1 && pair.find(7)->address == 0x1000,
               "an allocation is opened once");
        pair.ask(pair.mappings[0].place_of(reinterpret_cast<void *>(0x2000), 16));
        expect(opened_now() == 2 && pair.find(8)->address == 0x2000, "another one beside it");
        stand_in_free(0x1000);
        for (int tries = 0; opened_now() == 2 && tries < 1000; tries++)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        expect(opened_now() == 1 && pair.find(7) == nullptr, "what was freed is closed");
        expect(pair.find(8) != nullptr, "what was not freed stays");
        may_open = false;
        stand_in_allocate(0x3000, 0x1000, 9);
        pair.ask(pair.mappings[0].place_of(reinterpret_cast<void *>(0x3000), 16));
        expect(pair.find(9)->address == 0, "what cannot be opened is known as such");
        may_open = true;
    }
    expect(opened_now() == 0, "the rest is closed at the end");
    stand_in_free(0x2000);
    stand_in_free(0x3000);
}

void has_an_end() {
    Pair pair;
    for (uint64_t i = 1; i <= tuccl::kMostMappings + 1; i++) {
        Place place = {};
        place.id = i;
        const uint64_t base = 0x1000 * i;
        std::memcpy(place.handle, &base, sizeof base);
        pair.ask(place);
    }
    expect(opened_now() == tuccl::kMostMappings, "a table that is full takes no more");
    expect(pair.find(tuccl::kMostMappings + 1) == nullptr, "and does not forget others");
}

} // namespace

int main() {
    tells_places();
    opens_and_closes();
    has_an_end();
    return 0;
}
