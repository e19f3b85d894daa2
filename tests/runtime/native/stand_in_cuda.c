/* A libcuda.so.1 whose device memory is the host's, for tests of libtuccl-measure.so without a GPU.
 *
 * Streams run what they get at once; one that captures keeps it for the graph, and so does one that
 * waits for an event of it. STAND_IN_CAPABILITY is their compute capability. STAND_IN_GPUS says how
 * many devices there are; with STAND_IN_CAPTURES_NOTHING no stream can be captured. With
 * STAND_IN_COUNTS_TIME events have the time that NCCL's calls state, and no other. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    NO_DEVICE = 100,
    MPS_ENABLED = 133,
    MULTIPROCESSOR_COUNT = 16,
    CAPABILITY_MAJOR = 75,
    ARGUMENT_BYTES = 128,
    MOST_NODES = 4096,
    MOST_STREAMS = 4,
    COMPUTED_BLOCK_NS = 200,
};

struct node {
    void (*run)(void *argument);
    unsigned char argument[ARGUMENT_BYTES];
};

struct stream;

struct graph {
    int count;
    /* Streams that are captured into it, the first by name and the others by its events. */
    struct stream *streams[MOST_STREAMS];
    int streams_count;
    struct node nodes[];
};

struct stream {
    struct graph *capture;
};

struct event {
    struct timespec at;
    struct graph *capture;
};

/* What the stand-in for NCCL calls: `run` on a copy of the argument, now or when a graph is run. */
int stand_in_enqueue(struct stream *stream, void (*run)(void *argument), const void *argument,
                     size_t bytes);

/* Lets a call take its time. */
void stand_in_spend(long ns);

static long spent_ns;

void stand_in_spend(long ns) {
    if (getenv("STAND_IN_COUNTS_TIME") != NULL)
        spent_ns += ns;
    else
        nanosleep(&(struct timespec){0, ns}, NULL);
}

int stand_in_enqueue(struct stream *stream, void (*run)(void *argument), const void *argument,
                     size_t bytes) {
    struct node node = {.run = run};
    if (bytes > ARGUMENT_BYTES)
        return INVALID_VALUE;
    memcpy(node.argument, argument, bytes);
    if (stream->capture == NULL) {
        run(node.argument);
        return SUCCESS;
    }
    if (stream->capture->count == MOST_NODES)
        return INVALID_VALUE;
    stream->capture->nodes[stream->capture->count++] = node;
    return SUCCESS;
}

int cuInit(unsigned flags) {
    (void)flags;
    const char *gpus = getenv("STAND_IN_GPUS");
    return gpus != NULL && atoi(gpus) == 0 ? NO_DEVICE : SUCCESS;
}

int cuDriverGetVersion(int *version) {
    *version = 12080;
    return SUCCESS;
}

int cuGetErrorName(int error, const char **name) {
    *name = error == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_INVALID_VALUE";
    return SUCCESS;
}

int cuGetErrorString(int error, const char **text) {
    *text = error == NO_DEVICE ? "no CUDA-capable device is detected" : "invalid argument";
    return SUCCESS;
}

int cuDeviceGetCount(int *count) {
    const char *gpus = getenv("STAND_IN_GPUS");
    *count = gpus != NULL ? atoi(gpus) : 8;
    return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return SUCCESS;
}

/* STAND_IN_MPS: of how many GPUs MPS lets processes share; "unknown" to older drivers. */
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    const char *shared = getenv("STAND_IN_MPS");
    if (shared != NULL && strcmp(shared, "unknown") == 0)
        return INVALID_VALUE;
    if (attribute == MULTIPROCESSOR_COUNT)
        *value = 132;
    else if (attribute == CAPABILITY_MAJOR)
        *value = getenv("STAND_IN_CAPABILITY") != NULL ? atoi(getenv("STAND_IN_CAPABILITY")) : 9;
    else
        *value = attribute == MPS_ENABLED && shared != NULL && device < atoi(shared);
    return SUCCESS;
}

int cuDeviceGetName(char *name, int bytes, int device) {
    snprintf(name, (size_t)bytes, "stand-in GPU %d", device);
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    static int contexts[64];
    *context = &contexts[device];
    return SUCCESS;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    return SUCCESS;
}

int cuCtxSetCurrent(void *context) {
    return context != NULL ? SUCCESS : INVALID_VALUE;
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = *total_bytes = (size_t)64 << 20;
    return SUCCESS;
}

/* STAND_IN_ORDER names a file that tells what came first; stand_in_nccl.c writes to it too. */
static void note(const char *what, size_t bytes) {
    const char *path = getenv("STAND_IN_ORDER");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;
    if (file != NULL) {
        fprintf(file, "%ld %s %zu\n", (long)getpid(), what, bytes);
        fclose(file);
    }
}

int cuMemAlloc_v2(uint64_t *pointer, size_t bytes) {
    note("allocate", bytes);
    *pointer = (uint64_t)(uintptr_t)malloc(bytes);
    return *pointer != 0 ? SUCCESS : INVALID_VALUE;
}

int cuMemFree_v2(uint64_t pointer) {
    free((void *)(uintptr_t)pointer);
    return SUCCESS;
}

int cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    (void)flags;
    *pointer = malloc(bytes);
    return *pointer != NULL ? SUCCESS : INVALID_VALUE;
}

int cuMemFreeHost(void *pointer) {
    free(pointer);
    return SUCCESS;
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    memcpy((void *)(uintptr_t)to, from, bytes);
    return SUCCESS;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return SUCCESS;
}

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

static void copy(void *argument) {
    const struct copy *words = argument;
    memcpy(words->to, words->from, words->bytes);
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, struct stream *stream) {
    struct copy words = {(void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes};
    return stand_in_enqueue(stream, copy, &words, sizeof words);
}

/* A kernel: adds the number of bytes in which two places differ to a counter. */
struct differ {
    const unsigned char *one, *other;
    uint64_t bytes, *found;
};

static void differ(void *argument) {
    const struct differ *words = argument;
    for (uint64_t i = 0; i < words->bytes; i++)
        *words->found += words->one[i] != words->other[i];
}

/* Blocks that this thread's streams have computed, for tests that count instead of timing. */
uint64_t stand_in_blocks_computed(void);

static _Thread_local uint64_t computed;

uint64_t stand_in_blocks_computed(void) {
    return computed;
}

/* The other kernel: takes its time, as long as all its blocks one after another. */
static void compute(void *argument) {
    struct timespec begun, now;
    computed += *(const unsigned *)argument;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    long ns = (long)*(const unsigned *)argument * COMPUTED_BLOCK_NS;
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begun.tv_sec) * 1000000000L + now.tv_nsec - begun.tv_nsec < ns);
}

enum kernel { DIFFER = 1, COMPUTE };

int cuModuleLoadData(void **module, const void *image) {
    static enum kernel kernels[] = {DIFFER, COMPUTE};
    *module = strstr(image, ".entry differ(") != NULL          ? &kernels[0]
              : strstr(image, ".entry tuccl_compute(") != NULL ? &kernels[1]
                                                               : NULL;
    return *module != NULL ? SUCCESS : INVALID_VALUE;
}

int cuModuleUnload(void *module) {
    return module != NULL ? SUCCESS : INVALID_VALUE;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    const char *own = *(enum kernel *)module == DIFFER ? "differ" : "tuccl_compute";
    *function = module;
    return strcmp(name, own) == 0 ? SUCCESS : INVALID_VALUE;
}

int cuFuncSetAttribute(void *function, int attribute, int value) {
    (void)attribute, (void)value;
    return function != NULL ? SUCCESS : INVALID_VALUE;
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   struct stream *stream, void **parameters, void **extra) {
    (void)grid_y, (void)grid_z, (void)block_y, (void)block_z, (void)shared_bytes, (void)extra;
    if (function == NULL || grid_x == 0 || block_x == 0)
        return INVALID_VALUE;
    if (*(enum kernel *)function == COMPUTE)
        return stand_in_enqueue(stream, compute, &grid_x, sizeof grid_x);
    struct differ words;
    memcpy(&words.one, parameters[0], 8);
    memcpy(&words.other, parameters[1], 8);
    memcpy(&words.bytes, parameters[2], 8);
    memcpy(&words.found, parameters[3], 8);
    return stand_in_enqueue(stream, differ, &words, sizeof words);
}

int cuMemsetD8Async(uint64_t pointer, unsigned char byte, size_t bytes, struct stream *stream) {
    if (bytes == 0 || stream->capture != NULL)
        return INVALID_VALUE;
    memset((void *)(uintptr_t)pointer, byte, bytes);
    return SUCCESS;
}

int cuStreamIsCapturing(struct stream *stream, int *captured) {
    *captured = stream->capture != NULL;
    return SUCCESS;
}

int cuStreamCreate(struct stream **stream, unsigned flags) {
    (void)flags;
    *stream = calloc(1, sizeof **stream);
    return SUCCESS;
}

int cuStreamDestroy_v2(struct stream *stream) {
    free(stream);
    return SUCCESS;
}

int cuStreamSynchronize(struct stream *stream) {
    return stream == NULL || stream->capture == NULL ? SUCCESS : INVALID_VALUE;
}

int cuCtxSynchronize(void) {
    return SUCCESS;
}

int cuStreamWaitEvent(struct stream *stream, const struct event *event, unsigned flags) {
    (void)flags;
    if (stream == NULL || event == NULL)
        return INVALID_VALUE;
    struct graph *capture = event->capture;
    if (capture == NULL || stream->capture == capture)
        return SUCCESS;
    if (stream->capture != NULL || capture->streams_count == MOST_STREAMS)
        return INVALID_VALUE;
    capture->streams[capture->streams_count++] = stream;
    stream->capture = capture;
    return SUCCESS;
}

int cuEventCreate(struct event **event, unsigned flags) {
    (void)flags;
    *event = calloc(1, sizeof **event);
    return SUCCESS;
}

int cuEventDestroy_v2(struct event *event) {
    free(event);
    return SUCCESS;
}

int cuEventRecord(struct event *event, struct stream *stream) {
    event->capture = stream != NULL ? stream->capture : NULL;
    if (getenv("STAND_IN_COUNTS_TIME") != NULL)
        event->at = (struct timespec){spent_ns / 1000000000, spent_ns % 1000000000};
    else
        clock_gettime(CLOCK_MONOTONIC, &event->at);
    return SUCCESS;
}

int cuEventElapsedTime(float *ms, const struct event *from, const struct event *to) {
    *ms = (float)((double)(to->at.tv_sec - from->at.tv_sec) * 1e3 +
                  (double)(to->at.tv_nsec - from->at.tv_nsec) / 1e6);
    return SUCCESS;
}

int cuStreamBeginCapture_v2(struct stream *stream, int mode) {
    (void)mode;
    if (stream->capture != NULL || getenv("STAND_IN_CAPTURES_NOTHING") != NULL)
        return INVALID_VALUE;
    stream->capture = calloc(1, sizeof(struct graph) + MOST_NODES * sizeof(struct node));
    stream->capture->streams[stream->capture->streams_count++] = stream;
    return SUCCESS;
}

int cuStreamEndCapture(struct stream *stream, struct graph **graph) {
    *graph = stream->capture;
    if (*graph == NULL)
        return INVALID_VALUE;
    for (int i = 0; i < (*graph)->streams_count; i++)
        (*graph)->streams[i]->capture = NULL;
    return SUCCESS;
}

int cuGraphInstantiateWithFlags(struct graph **exec, const struct graph *graph,
                                unsigned long long flags) {
    (void)flags;
    size_t bytes = sizeof *graph + (size_t)graph->count * sizeof(struct node);
    *exec = malloc(bytes);
    memcpy(*exec, graph, bytes);
    return SUCCESS;
}

int cuGraphLaunch(struct graph *exec, struct stream *stream) {
    if (stream->capture != NULL)
        return INVALID_VALUE;
    for (int i = 0; i < exec->count; i++)
        exec->nodes[i].run(exec->nodes[i].argument);
    return SUCCESS;
}

int cuGraphDestroy(struct graph *graph) {
    free(graph);
    return SUCCESS;
}

int cuGraphExecDestroy(struct graph *exec) {
    free(exec);
    return SUCCESS;
}
