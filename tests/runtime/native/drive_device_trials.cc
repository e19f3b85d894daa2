// Events, copies and reuse of trials, over a CUDA whose device does what it has when it is told to.
//
//   drive_device_trials
#include "executor.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>
#include <functional>
#include <set>
#include <vector>

struct CUstream_st {
    std::vector<std::function<void()>> work;
    bool is_usable = true;

    void run() {
        for (const auto &each : work)
            each();
        work.clear();
    }
};
struct CUevent_st {
    bool is_recorded;
    int pending;
    float time_ms;
};

namespace {

int left_errors = 0;
float now_ms = 0.0F;
int allowed = -1; // Things that may still be made; negative: any number.
std::set<const void *> alive;

cudaError_t fail(cudaError_t error) {
    left_errors++;
    return error;
}

template <typename Made> cudaError_t make(Made **made, size_t bytes) {
    if (allowed == 0)
        return fail(cudaErrorMemoryAllocation);
    allowed--;
    *made = static_cast<Made *>(std::calloc(bytes, 1));
    alive.insert(*made);
    return cudaSuccess;
}

void check(bool holds, const char *what) {
    if (holds && left_errors == 0)
        return;
    std::fprintf(stderr, "%s (%d errors left)\n", what, left_errors);
    std::exit(1);
}

constexpr tuccl_trials_need kNeed = {2, 4, 16, 3};

tuccl_trials *create(const tuccl_trials_need &need) {
    tuccl_trials *made = nullptr;
    check(tuccl_trials_create(&made, &need) == nullptr && made != nullptr, "create");
    return made;
}

} // namespace

cudaError_t cudaGetLastError() {
    left_errors = 0;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **memory, size_t bytes) {
    return make(memory, bytes);
}
cudaError_t cudaFree(void *memory) {
    alive.erase(memory);
    std::free(memory);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned) {
    return cudaMalloc(memory, bytes);
}
cudaError_t cudaFreeHost(void *memory) {
    return cudaFree(memory);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
    if (!stream->is_usable)
        return fail(cudaErrorInvalidResourceHandle);
    stream->work.emplace_back([=] { std::memcpy(to, from, bytes); });
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return make(event, sizeof(CUevent_st));
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return cudaFree(event);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (!stream->is_usable)
        return fail(cudaErrorInvalidResourceHandle);
    event->is_recorded = true;
    event->pending++;
    stream->work.emplace_back([event] {
        event->pending--;
        event->time_ms = now_ms += 1.0F;
    });
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    return event->pending == 0 ? cudaSuccess : fail(cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float *time_ms, cudaEvent_t first, cudaEvent_t last) {
    if (!first->is_recorded || !last->is_recorded)
        return fail(cudaErrorInvalidResourceHandle);
    if (first->pending != 0 || last->pending != 0)
        return fail(cudaErrorNotReady);
    *time_ms = last->time_ms - first->time_ms;
    return cudaSuccess;
}

int main() {
    CUstream_st stream;
    CUstream_st gone;
    gone.is_usable = false;

    tuccl_trials *trials = create(kNeed);
    check(tuccl_trials_us_after(trials, 1, 2) < 0.0F, "marks that were never put have no time");
    check(tuccl_trials_mark(trials, 1, 2, &gone) != 0, "a stream that is gone");
    for (uint32_t mark : {2U, 3U})
        check(tuccl_trials_mark(trials, 1, mark, &stream) == 0, "mark");
    check(tuccl_trials_us_after(trials, 1, 2) < 0.0F, "the device is not so far");
    stream.run();
    check(tuccl_trials_us_after(trials, 1, 2) == 1000.0F, "a millisecond");

    std::memset(tuccl_trials_bytes(trials, 1), 7, kNeed.bytes);
    check(tuccl_trials_write(trials, 1, &gone) != 0, "a copy on a stream that is gone");
    check(tuccl_trials_write(trials, 1, &stream) == 0, "write");
    const struct tuccl_trials_view view = tuccl_trials_view(trials, 1);
    stream.work.emplace_back([view] { // Rank 2 alone sends.
        std::memcpy(static_cast<char *>(view.receive) + 2 * kNeed.bytes, view.send, kNeed.bytes);
    });
    check(tuccl_trials_read(trials, 1, &stream) == 0, "read");
    check(tuccl_trials_came(trials, 1) == 0, "nothing has come yet");

    tuccl_trials_retire(trials);
    tuccl_trials *other = create(kNeed);
    check(other != trials, "one in use is not given to another communicator");
    stream.run();
    check(tuccl_trials_came(trials, 1) == 1, "all have come");
    check(tuccl_trials_bytes(trials, 1)[3 * kNeed.bytes] == 7, "rank 2's");
    check(tuccl_trials_bytes(trials, 1)[2 * kNeed.bytes] == 0, "rank 1's");
    tuccl_trials *of_others = create({2, 4, 16, 5});
    check(of_others != trials, "of other ranks");
    check(create(kNeed) == trials, "one that is idle is used again");

    const size_t before = alive.size();
    for (int given = 0; given < 2 + 2 * 5; given++) {
        allowed = given;
        tuccl_trials *none = nullptr;
        check(tuccl_trials_create(&none, &kNeed) != nullptr && none == nullptr, "no memory");
    }
    check(alive.size() == before, "what was made before a failure is freed");
    for (tuccl_trials *each : {trials, other, of_others})
        tuccl_trials_retire(each);
    return 0;
}
