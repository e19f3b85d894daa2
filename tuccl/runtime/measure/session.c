#include "session.h"

#include <stdlib.h>
#include <string.h>

/* Records the reason why a function of the library returns -1. */
#define refuse(measure, ...) (fail(&(measure)->failure, __VA_ARGS__), -1)

static bool same_call(const struct tuccl_measure_call *a, const struct tuccl_measure_call *b) {
    return a->size_bytes == b->size_bytes && a->configuration == b->configuration &&
           a->operation == b->operation && a->data_type == b->data_type &&
           a->in_place == b->in_place && a->use_graph == b->use_graph && a->calls == b->calls &&
           a->communicator == b->communicator && a->in_windows == b->in_windows &&
           a->computation_us == b->computation_us;
}

struct cached_graph *graph_cache_find(struct graph_cache *cache,
                                      const struct tuccl_measure_call *call) {
    for (int i = 0; i < CACHED_GRAPHS; i++) {
        struct cached_graph *entry = &cache->entries[i];
        if (entry->last_use > 0 && same_call(&entry->call, call)) {
            entry->last_use = ++cache->uses;
            return entry;
        }
    }
    return NULL;
}

static void drop(struct cached_graph *entry, const struct cuda_driver *cuda) {
    if (entry->exec != NULL)
        cuda->destroy_graph_exec(entry->exec);
    memset(entry, 0, sizeof *entry);
}

void graph_cache_add(struct graph_cache *cache, const struct cuda_driver *cuda,
                     const struct tuccl_measure_call *call, cuda_graph_exec exec) {
    struct cached_graph *oldest = &cache->entries[0];
    for (int i = 1; i < CACHED_GRAPHS; i++)
        if (cache->entries[i].last_use < oldest->last_use)
            oldest = &cache->entries[i];
    drop(oldest, cuda);
    *oldest = (struct cached_graph){*call, ++cache->uses, exec};
}

static void graph_cache_clear(struct graph_cache *cache, const struct cuda_driver *cuda) {
    for (int i = 0; i < CACHED_GRAPHS; i++)
        drop(&cache->entries[i], cuda);
}

enum {
    /* Ranks synchronize by this many tiny all_reduce in one graph, which takes long enough for the
       host to enqueue the timed launch behind it, at 2 us for one of the executor's. */
    MEETINGS = 32,
    MEETING_FLOATS = 2,
};

static const size_t usual_capacity_bytes = (size_t)1 << 30;

struct tuccl_measure *tuccl_measure_create(void) {
    return calloc(1, sizeof(struct tuccl_measure));
}

const char *tuccl_measure_failure(const struct tuccl_measure *measure) {
    return measure->failure.text;
}

int tuccl_measure_is_broken(const struct tuccl_measure *measure) {
    return measure->failure.broken;
}

int tuccl_measure_load(struct tuccl_measure *measure, const char *path) {
    int version = 0;
    if (!nccl_load(&measure->nccl, path, &measure->failure) ||
        !NCCL_OK(measure, NULL, measure->nccl.version(&version), "ncclGetVersion"))
        return -1;
    return version;
}

int tuccl_measure_unique_id(struct tuccl_measure *measure, unsigned char *id) {
    struct nccl_id made;
    if (measure->nccl.unique_id == NULL)
        return refuse(measure, "NCCL was not loaded");
    if (!NCCL_OK(measure, NULL, measure->nccl.unique_id(&made), "ncclGetUniqueId"))
        return -1;
    memcpy(id, made.internal, sizeof made.internal);
    return 0;
}

int tuccl_measure_take_gpu(struct tuccl_measure *measure, int ordinal, char *name,
                           size_t name_bytes) {
    int count = 0, version = 0;
    if (!cuda_load(&measure->cuda, &measure->failure) ||
        !CUDA_OK(measure, driver_version, &version) || !CUDA_OK(measure, device_count, &count))
        return -1;
    if (ordinal < 0 || ordinal >= count)
        return refuse(measure, "there is no GPU %d here, only %d in all", ordinal, count);
    if (!CUDA_OK(measure, device, &measure->device, ordinal) ||
        !CUDA_OK(measure, device_name, name, (int)name_bytes, measure->device) ||
        !CUDA_OK(measure, retain_context, &measure->context, measure->device))
        return -1;
    measure->has_gpu = true;
    if (!CUDA_OK(measure, set_context, measure->context) ||
        !CUDA_OK(measure, create_stream, &measure->stream, CUDA_STREAM_NON_BLOCKING) ||
        !CUDA_OK(measure, create_event, &measure->begin, CUDA_EVENT_WITH_TIMING) ||
        !CUDA_OK(measure, create_event, &measure->end, CUDA_EVENT_WITH_TIMING))
        return -1;
    return version;
}

bool session_enter(struct tuccl_measure *measure) {
    if (measure->member_count == 0)
        return fail(&measure->failure, "there is no communicator");
    return CUDA_OK(measure, set_context, measure->context);
}

const struct member *session_member(struct tuccl_measure *measure,
                                    const struct tuccl_measure_call *call) {
    if (call->communicator >= 0 && call->communicator < measure->member_count)
        return &measure->members[call->communicator];
    fail(&measure->failure, "there is no communicator %d, only %d in all", (int)call->communicator,
         measure->member_count);
    return NULL;
}

static bool is_sound(struct tuccl_measure *measure, nccl_communicator communicator) {
    int error = 0;
    int result = measure->nccl.async_error(communicator, &error);
    return NCCL_OK(measure, communicator, result, "ncclCommGetAsyncError") &&
           NCCL_OK(measure, communicator, error, "a collective");
}

bool session_wait(struct tuccl_measure *measure) {
    if (!CUDA_OK(measure, synchronize_stream, measure->stream))
        return false;
    for (int i = 0; i < measure->member_count; i++)
        if (!is_sound(measure, measure->members[i].communicator))
            return false;
    return true;
}

/* Communicators must be alive. */
static void free_registered(struct tuccl_measure *measure) {
    const struct nccl *nccl = &measure->nccl;
    for (int i = 0; i < measure->member_count; i++) {
        struct member *member = &measure->members[i];
        if (member->send_window != NULL)
            nccl->remove_window(member->communicator, member->send_window);
        if (member->receive_window != NULL)
            nccl->remove_window(member->communicator, member->receive_window);
        member->send_window = member->receive_window = NULL;
        member->registered = false;
    }
    if (measure->registered.send != 0)
        nccl->mem_free((void *)(uintptr_t)measure->registered.send);
    if (measure->registered.receive != 0)
        nccl->mem_free((void *)(uintptr_t)measure->registered.receive);
    measure->registered = (struct buffers){0, 0};
}

static void free_buffers(struct tuccl_measure *measure) {
    free_registered(measure);
    if (measure->buffers.send != 0)
        measure->cuda.free(measure->buffers.send);
    if (measure->buffers.receive != 0)
        measure->cuda.free(measure->buffers.receive);
    measure->buffers = (struct buffers){0, 0};
    measure->capacity_bytes = 0;
}

static bool clear_buffers(struct tuccl_measure *measure, const struct buffers *buffers) {
    /* No NaN from previous users of the memory. */
    size_t bytes = measure->capacity_bytes;
    return CUDA_OK(measure, fill, buffers->send, 0x3C, bytes, measure->stream) &&
           CUDA_OK(measure, fill, buffers->receive, 0x3C, bytes, measure->stream) &&
           CUDA_OK(measure, synchronize_stream, measure->stream);
}

bool session_reserve(struct tuccl_measure *measure, size_t bytes) {
    if (bytes <= measure->capacity_bytes)
        return true;
    graph_cache_clear(&measure->graphs, &measure->cuda);
    free_buffers(measure);
    if (!CUDA_OK(measure, allocate, &measure->buffers.send, bytes + GUARD_BYTES) ||
        !CUDA_OK(measure, allocate, &measure->buffers.receive, bytes + GUARD_BYTES))
        return false;
    measure->capacity_bytes = bytes;
    return clear_buffers(measure, &measure->buffers);
}

static bool allocate_registered(struct tuccl_measure *measure) {
    size_t bytes = measure->capacity_bytes + GUARD_BYTES;
    void *send = NULL, *receive = NULL;
    if (measure->registered.send != 0)
        return true;
    bool made = NCCL_OK(measure, NULL, measure->nccl.mem_alloc(&send, bytes), "ncclMemAlloc") &&
                NCCL_OK(measure, NULL, measure->nccl.mem_alloc(&receive, bytes), "ncclMemAlloc");
    measure->registered = (struct buffers){(uintptr_t)send, (uintptr_t)receive};
    return made && clear_buffers(measure, &measure->registered);
}

static bool add_window(struct tuccl_measure *measure, nccl_communicator communicator,
                       device_pointer memory, void **window) {
    int result = measure->nccl.add_window(communicator, (void *)(uintptr_t)memory,
                                          measure->capacity_bytes + GUARD_BYTES, window,
                                          NCCL_SYMMETRIC_WINDOW);
    return NCCL_OK(measure, communicator, result, "ncclCommWindowRegister");
}

bool session_register(struct tuccl_measure *measure, const struct tuccl_measure_call *call) {
    if (session_member(measure, call) == NULL)
        return false;
    struct member *member = &measure->members[call->communicator];
    if (measure->nccl.mem_alloc == NULL || measure->nccl.add_window == NULL)
        return fail(&measure->failure, "this NCCL has no windows (ncclCommWindowRegister)");
    if (!allocate_registered(measure))
        return false;
    /* Where NCCL cannot register symmetric memory, a window is NULL, and the call runs as any. */
    if (member->registered)
        return true;
    member->registered = true;
    return add_window(measure, member->communicator, measure->registered.send,
                      &member->send_window) &&
           add_window(measure, member->communicator, measure->registered.receive,
                      &member->receive_window);
}

static bool reserve_usual(struct tuccl_measure *measure) {
    size_t free_bytes = 0, total_bytes = 0;
    if (!CUDA_OK(measure, memory_info, &free_bytes, &total_bytes))
        return false;
    /* Moving the buffers drops every graph, so they are large from the start. */
    size_t eighth = free_bytes / 8 / GUARD_BYTES * GUARD_BYTES;
    return session_reserve(measure, eighth < usual_capacity_bytes ? eighth : usual_capacity_bytes);
}

bool session_capture(struct tuccl_measure *measure,
                     bool (*enqueue)(struct tuccl_measure *measure, const void *argument),
                     const void *argument, cuda_graph_exec *exec) {
    cuda_graph graph = NULL;
    if (!CUDA_OK(measure, begin_capture, measure->stream, CUDA_CAPTURE_THREAD_LOCAL))
        return false;
    if (!enqueue(measure, argument)) {
        /* The stream must leave capture mode; the failure is recorded already. */
        if (measure->cuda.end_capture(measure->stream, &graph) == 0 && graph != NULL)
            measure->cuda.destroy_graph(graph);
        return false;
    }
    if (!CUDA_OK(measure, end_capture, measure->stream, &graph))
        return false;
    bool made = CUDA_OK(measure, instantiate_graph, exec, graph, 0);
    measure->cuda.destroy_graph(graph);
    return made;
}

static bool enqueue_meeting(struct tuccl_measure *measure, const void *times) {
    struct collective tiny = {.operation = TUCCL_ALL_REDUCE,
                              .type = TYPE_FLOAT32,
                              .ranks = measure->members[0].ranks,
                              .count = MEETING_FLOATS};
    for (int i = 0; i < *(const int *)times; i++)
        if (!nccl_enqueue(&measure->nccl, measure->members[0].communicator, &tiny,
                          measure->meeting_point, measure->meeting_point, measure->stream,
                          &measure->failure))
            return false;
    return true;
}

static bool prepare_meeting(struct tuccl_measure *measure) {
    const int once = 1;
    size_t bytes = MEETING_FLOATS * sizeof(float);
    return CUDA_OK(measure, allocate, &measure->meeting_point, bytes) &&
           CUDA_OK(measure, fill, measure->meeting_point, 0, bytes, measure->stream) &&
           enqueue_meeting(measure, &once) && session_wait(measure);
}

bool session_prepare_graphs(struct tuccl_measure *measure) {
    const int times = MEETINGS;
    if (measure->meeting != NULL)
        return true;
    return session_capture(measure, enqueue_meeting, &times, &measure->meeting) &&
           session_meet(measure, true) && session_wait(measure);
}

bool session_meet(struct tuccl_measure *measure, bool in_graph) {
    const int times = MEETINGS;
    if (in_graph)
        return CUDA_OK(measure, launch_graph, measure->meeting, measure->stream);
    return enqueue_meeting(measure, &times);
}

int tuccl_measure_join(struct tuccl_measure *measure, int ranks, int rank,
                       const unsigned char *id) {
    struct nccl_id given;
    memcpy(given.internal, id, sizeof given.internal);
    if (!measure->has_gpu || measure->nccl.join == NULL)
        return refuse(measure, "the rank has no GPU or no NCCL yet");
    /* Allocated before the communicator, as in a job with a model, so that allocations at its start
     * do not move the buffers. */
    if (!CUDA_OK(measure, set_context, measure->context) || !reserve_usual(measure))
        return -1;
    struct member all = {.ranks = ranks, .rank = rank};
    int result = measure->nccl.join(&all.communicator, ranks, given, rank);
    if (!NCCL_OK(measure, NULL, result, "ncclCommInitRank"))
        return -1;
    measure->members[measure->member_count++] = all;
    return prepare_meeting(measure) ? 0 : -1;
}

int tuccl_measure_split(struct tuccl_measure *measure, int colour, int ranks, int rank) {
    if (!session_enter(measure))
        return -1;
    if (measure->member_count == MOST_COMMUNICATORS)
        return refuse(measure, "a rank has at most %d communicators", MOST_COMMUNICATORS);
    const struct member *all = &measure->members[0];
    struct member made = {.ranks = ranks, .rank = rank};
    int result =
        measure->nccl.split(all->communicator, colour, all->rank, &made.communicator, NULL);
    if (!NCCL_OK(measure, all->communicator, result, "ncclCommSplit"))
        return -1;
    measure->members[measure->member_count] = made;
    return measure->member_count++;
}

void tuccl_measure_destroy(struct tuccl_measure *measure) {
    if (measure == NULL)
        return;
    if (measure->has_gpu) {
        measure->cuda.set_context(measure->context);
        graph_cache_clear(&measure->graphs, &measure->cuda);
        if (measure->meeting != NULL)
            measure->cuda.destroy_graph_exec(measure->meeting);
        free_registered(measure);
        while (measure->member_count > 0)
            measure->nccl.destroy(measure->members[--measure->member_count].communicator);
        free_buffers(measure);
        if (measure->meeting_point != 0)
            measure->cuda.free(measure->meeting_point);
        if (measure->host_memory != NULL)
            measure->cuda.free_host(measure->host_memory);
        computation_free(&measure->computation, &measure->cuda);
        if (measure->begin != NULL)
            measure->cuda.destroy_event(measure->begin);
        if (measure->end != NULL)
            measure->cuda.destroy_event(measure->end);
        if (measure->stream != NULL)
            measure->cuda.destroy_stream(measure->stream);
        measure->cuda.release_context(measure->device);
    }
    free(measure);
}
