/* How fast the computation beside calls is on this rank's GPU. */
#include "session.h"

#include <stdlib.h>

enum {
    /* 40 kernels of four waves are about 4 ms on an H100, long enough for its clock to settle. */
    KERNELS = 40,
    WARM_UPS = 3,
    REPEATS = 9,
};

static int ascending(const void *a, const void *b) {
    float first = *(const float *)a, second = *(const float *)b;
    return (first > second) - (first < second);
}

/* Measures the computation's speed while all ranks compute: they may share a GPU or its power. */
static bool calibrate(struct tuccl_measure *measure) {
    struct computation *computation = &measure->computation;
    const struct cuda_driver *cuda = &measure->cuda;
    struct failure *failure = &measure->failure;
    uint64_t blocks = (uint64_t)KERNELS * computation->blocks_in_a_kernel;
    float ms[REPEATS];
    for (int i = 0; i < WARM_UPS + REPEATS; i++) {
        float *taken = &ms[i < WARM_UPS ? 0 : i - WARM_UPS];
        if (!session_meet(measure, false) ||
            !CUDA_OK(measure, record_event, measure->begin, measure->stream) ||
            !computation_fork(computation, cuda, measure->stream, failure) ||
            !computation_enqueue(computation, cuda, blocks, failure) ||
            !computation_join(computation, cuda, measure->stream, failure) ||
            !CUDA_OK(measure, record_event, measure->end, measure->stream) ||
            !session_wait(measure) ||
            !CUDA_OK(measure, elapsed_ms, taken, measure->begin, measure->end))
            return false;
    }
    qsort(ms, REPEATS, sizeof *ms, ascending);
    double median_us = (double)ms[REPEATS / 2] * 1e3;
    if (median_us <= 0)
        return fail(failure, "the computation beside calls took no time");
    computation->blocks_per_us = (double)blocks / median_us;
    return true;
}

int tuccl_measure_prepare_computation(struct tuccl_measure *measure, const char *ptx) {
    struct computation *computation = &measure->computation;
    if (!session_enter(measure))
        return -1;
    if (computation->blocks_per_us > 0)
        return 0;
    if (computation->kernel == NULL &&
        !computation_load(computation, &measure->cuda, measure->device, ptx, &measure->failure))
        return -1;
    return calibrate(measure) ? 0 : -1;
}
