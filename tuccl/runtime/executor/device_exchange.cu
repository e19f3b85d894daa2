#include "executor.h"

#include <atomic>
#include <chrono>
#include <cuda_runtime_api.h>
#include <new>
#include <thread>
#include <vector>

struct tuccl_exchange {
    cudaStream_t stream;
    char *memory; // One rank's bytes to send, then those of all.
    size_t bytes;
    uint32_t ranks;
    std::vector<cudaEvent_t> marks;
    std::atomic<bool> is_held{false};
};

namespace {

// Runs in a thread of CUDA's, ahead of what is on the stream. A host that never comes back holds
// nothing for ever.
void CUDART_CB wait_for_release(void *given) {
    const auto *exchange = static_cast<const tuccl_exchange *>(given);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (exchange->is_held.load() && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::microseconds(10));
}

// CUDA gives a process's streams the GPU's channels in turn, and a stream that waits delays short
// kernels of the computing stream from some channels and not from others. A job's own stream comes
// after those of its first communicator; with two more before it, gaps between kernels of a DDP
// step are as with stock NCCL or shorter (docs/lab/beside-computation.md). A channel counts as
// long as its stream lives, so these are not destroyed. Without them calls are right, too.
void take_channels(char *memory, size_t bytes) {
    static std::atomic<uint64_t> devices{0}; // That have them, a bit each.
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess)
        return;
    const uint64_t bit = uint64_t{1} << (static_cast<unsigned>(device) % 64);
    if ((devices.fetch_or(bit) & bit) != 0)
        return;
    for (int i = 0; i < 2; i++) {
        cudaStream_t stream = nullptr;
        if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
            cudaMemsetAsync(memory, 0, bytes, stream) == cudaSuccess)
            (void)cudaStreamSynchronize(stream);
    }
    (void)cudaGetLastError();
}

} // namespace

int tuccl_device_enter(int device, struct tuccl_device_scope *before) {
    int current = 0;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaError_t error = cudaGetDevice(&current);
    if (error == cudaSuccess)
        error = cudaThreadExchangeStreamCaptureMode(&mode);
    if (before != nullptr)
        *before = {current, mode};
    if (error == cudaSuccess && (error = cudaSetDevice(device)) != cudaSuccess && before != nullptr)
        tuccl_device_leave(before);
    return error;
}

void tuccl_device_leave(const struct tuccl_device_scope *before) {
    cudaStreamCaptureMode mode = static_cast<cudaStreamCaptureMode>(before->capture_mode);
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    (void)cudaSetDevice(before->device);
}

uint64_t tuccl_device_free_bytes(void) {
    size_t free_bytes = 0;
    size_t all_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &all_bytes) == cudaSuccess)
        return free_bytes;
    (void)cudaGetLastError();
    return 0;
}

const char *tuccl_exchange_create(struct tuccl_exchange **exchange, size_t bytes, uint32_t ranks) {
    auto *made = new (std::nothrow) tuccl_exchange{nullptr, nullptr, bytes, ranks, {}, {}};
    *exchange = made;
    if (made != nullptr && cudaMalloc(&made->memory, bytes * (ranks + 1)) == cudaSuccess &&
        cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking) == cudaSuccess) {
        take_channels(made->memory, bytes);
        return nullptr;
    }
    (void)cudaGetLastError();
    tuccl_exchange_destroy(made);
    *exchange = nullptr;
    return "there is no device memory for a few bytes, or no stream";
}

struct tuccl_exchange_view tuccl_exchange_view(const struct tuccl_exchange *exchange) {
    return {exchange->stream, exchange->memory, exchange->memory + exchange->bytes};
}

const char *tuccl_exchange_prepare_marks(struct tuccl_exchange *exchange, uint32_t marks) {
    for (uint32_t i = 0; i < marks; i++) {
        cudaEvent_t mark = nullptr;
        if (cudaEventCreate(&mark) != cudaSuccess) {
            (void)cudaGetLastError();
            return "no event could be made";
        }
        exchange->marks.push_back(mark);
    }
    return nullptr;
}

int tuccl_exchange_mark(struct tuccl_exchange *exchange, uint32_t mark) {
    return cudaEventRecord(exchange->marks[mark], exchange->stream);
}

int tuccl_exchange_hold(struct tuccl_exchange *exchange) {
    exchange->is_held = true;
    return cudaLaunchHostFunc(exchange->stream, wait_for_release, exchange);
}

void tuccl_exchange_release(struct tuccl_exchange *exchange) {
    exchange->is_held = false;
}

float tuccl_exchange_us_after(const struct tuccl_exchange *exchange, uint32_t mark) {
    float time_ms = 0.0f;
    if (cudaEventElapsedTime(&time_ms, exchange->marks[mark], exchange->marks[mark + 1]) ==
        cudaSuccess)
        return 1e3f * time_ms;
    (void)cudaGetLastError();
    return -1.0f;
}

int tuccl_exchange_write(struct tuccl_exchange *exchange, const void *mine) {
    return cudaMemcpyAsync(exchange->memory, mine, exchange->bytes, cudaMemcpyHostToDevice,
                           exchange->stream);
}

int tuccl_exchange_ended(const struct tuccl_exchange *exchange) {
    const cudaError_t state = cudaStreamQuery(exchange->stream);
    if (state == cudaSuccess)
        return 1;
    (void)cudaGetLastError();
    return state == cudaErrorNotReady ? 0 : -1;
}

int tuccl_exchange_read(struct tuccl_exchange *exchange, void *all) {
    const cudaError_t error =
        cudaMemcpyAsync(all, exchange->memory + exchange->bytes, exchange->bytes * exchange->ranks,
                        cudaMemcpyDeviceToHost, exchange->stream);
    return error != cudaSuccess ? error : cudaStreamSynchronize(exchange->stream);
}

void tuccl_exchange_destroy(struct tuccl_exchange *exchange) {
    if (exchange == nullptr)
        return;
    for (const cudaEvent_t mark : exchange->marks)
        (void)cudaEventDestroy(mark);
    if (exchange->stream != nullptr) {
        (void)cudaStreamSynchronize(exchange->stream);
        (void)cudaStreamDestroy(exchange->stream);
    }
    (void)cudaFree(exchange->memory);
    delete exchange;
}
