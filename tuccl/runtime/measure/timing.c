#include "session.h"

#include <stdlib.h>

struct launch {
    nccl_communicator communicator;
    struct collective collective;
    bool in_windows;
    int calls;
    double blocks; /* Of computation beside each call. */
};

/* Returns the launch of a call after checking that it can run. */
static bool read_call(struct tuccl_measure *measure, const struct tuccl_measure_call *call,
                      struct launch *launch) {
    const struct member *member = session_member(measure, call);
    if (member == NULL)
        return false;
    if (call->calls < 1)
        return fail(&measure->failure, "a launch of %d calls is none", (int)call->calls);
    if (call->computation_us > 0 && measure->computation.blocks_per_us <= 0)
        return fail(&measure->failure, "the computation beside the call was not prepared");
    *launch = (struct launch){.communicator = member->communicator,
                              .in_windows = call->in_windows != 0,
                              .calls = call->calls,
                              .blocks = call->computation_us * measure->computation.blocks_per_us};
    return make_collective(&launch->collective, call->operation, call->data_type, call->size_bytes,
                           call->in_place != 0, member->ranks, member->rank, &measure->failure);
}

/* The calls of a launch use successive parts of the buffers, as in nccl-tests, so that the previous
 * call does not leave a small message in the cache. */
static bool enqueue_call(struct tuccl_measure *measure, const struct launch *launch, int number) {
    const struct collective *collective = &launch->collective;
    size_t stride = (larger_buffer_bytes(collective) + GUARD_BYTES - 1) / GUARD_BYTES * GUARD_BYTES;
    size_t parts = measure->capacity_bytes / stride;
    size_t offset = parts > 1 ? (size_t)number % parts * stride : 0;
    const struct buffers *buffers = launch->in_windows ? &measure->registered : &measure->buffers;
    device_pointer receive = buffers->receive + offset;
    device_pointer send = collective->in_place ? receive : buffers->send + offset;
    return nccl_enqueue(&measure->nccl, launch->communicator, collective, send, receive,
                        measure->stream, &measure->failure);
}

/* The computation runs on its own stream beside all calls of the launch, whose end waits for both.
 * The host enqueues a call and then the computation beside it, as a training does. */
static bool enqueue_launch(struct tuccl_measure *measure, const void *argument) {
    const struct launch *launch = argument;
    const struct computation *computation = &measure->computation;
    const struct cuda_driver *cuda = &measure->cuda;
    struct failure *failure = &measure->failure;
    bool computes = launch->blocks > 0;
    uint64_t enqueued = 0;
    if (computes && !computation_fork(computation, cuda, measure->stream, failure))
        return false;
    for (int i = 0; i < launch->calls; i++) {
        if (!enqueue_call(measure, launch, i))
            return false;
        /* Parts of a block add up over the calls. */
        uint64_t so_far = (uint64_t)(launch->blocks * (i + 1) + 0.5);
        if (computes && !computation_enqueue(computation, cuda, so_far - enqueued, failure))
            return false;
        enqueued = so_far;
    }
    return !computes || computation_join(computation, cuda, measure->stream, failure);
}

static bool start(struct tuccl_measure *measure, const struct launch *launch,
                  cuda_graph_exec exec) {
    if (exec != NULL)
        return CUDA_OK(measure, launch_graph, exec, measure->stream);
    return enqueue_launch(measure, launch);
}

int tuccl_measure_prepare_graphs(struct tuccl_measure *measure) {
    return session_enter(measure) && session_prepare_graphs(measure) ? 0 : -1;
}

int tuccl_measure_prepare(struct tuccl_measure *measure, const struct tuccl_measure_call *call) {
    struct launch whole;
    if (!session_enter(measure) || !read_call(measure, call, &whole) ||
        !session_reserve(measure, call->size_bytes) ||
        (call->in_windows && !session_register(measure, call)))
        return -1;
    if (graph_cache_find(&measure->graphs, call) != NULL)
        return 0;
    struct launch once = whole;
    once.calls = 1;
    cuda_graph_exec exec = NULL;
    /* Run outside of a graph first: NCCL may connect ranks at a configuration's first call. */
    if (!enqueue_launch(measure, &once) || !session_wait(measure) ||
        (call->use_graph && (!session_prepare_graphs(measure) ||
                             !session_capture(measure, enqueue_launch, &whole, &exec))))
        return -1;
    graph_cache_add(&measure->graphs, &measure->cuda, call, exec);
    return start(measure, &whole, exec) && session_wait(measure) ? 1 : -1;
}

static bool time_by_events(struct tuccl_measure *measure, const struct launch *launch,
                           cuda_graph_exec exec, double *time_us) {
    float ms = 0;
    if (!session_meet(measure, exec != NULL) ||
        !CUDA_OK(measure, record_event, measure->begin, measure->stream) ||
        !start(measure, launch, exec) ||
        !CUDA_OK(measure, record_event, measure->end, measure->stream) || !session_wait(measure) ||
        !CUDA_OK(measure, elapsed_ms, &ms, measure->begin, measure->end))
        return false;
    *time_us = (double)ms * 1e3 / launch->calls;
    return true;
}

int tuccl_measure_time(struct tuccl_measure *measure, const struct tuccl_measure_call *call,
                       int launches, double *times_us) {
    struct launch launch;
    if (!session_enter(measure) || !read_call(measure, call, &launch))
        return -1;
    const struct cached_graph *prepared = graph_cache_find(&measure->graphs, call);
    if (prepared == NULL) {
        fail(&measure->failure, "the call was not prepared");
        return -1;
    }
    for (int i = 0; i < launches; i++)
        if (!time_by_events(measure, &launch, prepared->exec, &times_us[i]))
            return -1;
    return 0;
}

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
