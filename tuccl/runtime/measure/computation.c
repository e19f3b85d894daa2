#include "computation.h"

#include <stdlib.h>
#include <string.h>

enum {
    THREADS = 256,
    TILE_BYTES = 512,
    TILES = 1 << 17, /* 64 MiB: more than the level-2 caches of today's GPUs hold. */
    RESULT_BYTES = 65536 * 4,
    /* About 100 us on an H100: kernels of another stream may get no multiprocessor before a kernel
       has started all its blocks. */
    WAVES_IN_A_KERNEL = 4,
    COPY_BYTES = 1 << 20,
    LEAST_CAPABILITY = 7,
    ATTRIBUTE_MULTIPROCESSORS = 16,
    ATTRIBUTE_CAPABILITY_MAJOR = 75,
    ATTRIBUTE_MOST_SHARED_BYTES = 97,
    FUNCTION_DYNAMIC_SHARED_BYTES = 8,
};

#define OK(name, ...) cuda_succeeded(cuda, cuda->name(__VA_ARGS__), #name, failure)

/* Halves between 0.5 and 2 of either sign, from a linear congruential generator: products of zeros
 * take less power, and so less time, than those of data. */
static bool fill_operands(const struct computation *computation, const struct cuda_driver *cuda,
                          struct failure *failure) {
    uint16_t *halves = malloc(COPY_BYTES);
    if (halves == NULL)
        return fail(failure, "no memory for the operands of a computation");
    uint32_t state = 1;
    for (size_t i = 0; i < COPY_BYTES / sizeof *halves; i++) {
        state = state * 1664525u + 1013904223u;
        halves[i] = (uint16_t)((state >> 16 & 0x87FFu) | 0x3800u);
    }
    bool copied = true;
    for (size_t at = 0; copied && at < (size_t)TILES * TILE_BYTES; at += COPY_BYTES)
        copied = OK(copy_to_device, computation->operands + at, halves, COPY_BYTES);
    free(halves);
    return copied;
}

bool computation_load(struct computation *computation, const struct cuda_driver *cuda, int device,
                      const char *ptx, struct failure *failure) {
    int shared_bytes = 0, multiprocessors = 0, capability = 0;
    if (!OK(device_attribute, &capability, ATTRIBUTE_CAPABILITY_MAJOR, device))
        return false;
    if (capability < LEAST_CAPABILITY)
        return fail(failure,
                    "GPUs of compute capability %d cannot compute beside calls, those of %d can: "
                    "time calls --alone",
                    capability, LEAST_CAPABILITY);
    if (!OK(device_attribute, &shared_bytes, ATTRIBUTE_MOST_SHARED_BYTES, device) ||
        !OK(device_attribute, &multiprocessors, ATTRIBUTE_MULTIPROCESSORS, device) ||
        !OK(load_module, &computation->module, ptx) ||
        !OK(find_function, &computation->kernel, computation->module, "tuccl_compute") ||
        !OK(set_function_attribute, computation->kernel, FUNCTION_DYNAMIC_SHARED_BYTES,
            shared_bytes) ||
        !OK(create_stream, &computation->stream, CUDA_STREAM_NON_BLOCKING) ||
        !OK(create_event, &computation->forked, CUDA_EVENT_WITHOUT_TIMING) ||
        !OK(create_event, &computation->joined, CUDA_EVENT_WITHOUT_TIMING) ||
        !OK(allocate, &computation->operands, (size_t)TILES * TILE_BYTES) ||
        !OK(allocate, &computation->results, RESULT_BYTES))
        return false;
    computation->shared_bytes = (unsigned)shared_bytes;
    computation->blocks_in_a_kernel = (unsigned)(WAVES_IN_A_KERNEL * multiprocessors);
    return fill_operands(computation, cuda, failure);
}

bool computation_fork(const struct computation *computation, const struct cuda_driver *cuda,
                      cuda_stream stream, struct failure *failure) {
    return OK(record_event, computation->forked, stream) &&
           OK(wait_event, computation->stream, computation->forked, 0);
}

bool computation_enqueue(const struct computation *computation, const struct cuda_driver *cuda,
                         uint64_t blocks, struct failure *failure) {
    device_pointer operands = computation->operands, results = computation->results;
    unsigned last_tile = TILES - 1;
    void *arguments[] = {&operands, &results, &last_tile};
    while (blocks > 0) {
        unsigned most = computation->blocks_in_a_kernel;
        unsigned these = blocks < most ? (unsigned)blocks : most;
        if (!OK(launch_kernel, computation->kernel, these, 1, 1, THREADS, 1, 1,
                computation->shared_bytes, computation->stream, arguments, NULL))
            return false;
        blocks -= these;
    }
    return true;
}

bool computation_join(const struct computation *computation, const struct cuda_driver *cuda,
                      cuda_stream stream, struct failure *failure) {
    return OK(record_event, computation->joined, computation->stream) &&
           OK(wait_event, stream, computation->joined, 0);
}

void computation_free(struct computation *computation, const struct cuda_driver *cuda) {
    if (computation->operands != 0)
        cuda->free(computation->operands);
    if (computation->results != 0)
        cuda->free(computation->results);
    if (computation->forked != NULL)
        cuda->destroy_event(computation->forked);
    if (computation->joined != NULL)
        cuda->destroy_event(computation->joined);
    if (computation->stream != NULL)
        cuda->destroy_stream(computation->stream);
    if (computation->module != NULL)
        cuda->unload_module(computation->module);
    memset(computation, 0, sizeof *computation);
}
