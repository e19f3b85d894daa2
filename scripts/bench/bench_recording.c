/* What the recorder costs a call: the plugin's start_event as NCCL calls it, once a call, with the
 * periodic writing of the file in it.
 *
 *   bench_recording PLUGIN.so ABI [SIZES]
 *
 * ABI is 4 or 5; SIZES how many different calls take turns (10 if not given). TUCCL_RECORD names
 * the directory. Prints the median over batches, the slowest batch, and the share of a call of
 * 10 us, about what NCCL takes the host for. */
#include "profiler_abi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES = 401, EVENTS = 50000, MOST_SIZES = 4096 };

/* Time of this process alone: other load does not count, its own writing does. */
static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

struct driver {
    int (*start_event)(void *context, void **handle, void *event);
    void *context;
    int abi;
    int sizes;
};

static void run_v4(const struct driver *driver) {
    static char buffer[8];
    for (int i = 0; i < EVENTS; i++) {
        struct tuccl_event_v4 event = {.type = NCCL_PROFILE_COLLECTIVE};
        void *handle;
        event.collective.function = i % 3 == 0 ? "AllGather" : "AllReduce";
        event.collective.datatype = "ncclFloat16";
        event.collective.send = event.collective.receive = buffer;
        event.collective.count = 1000 + (size_t)(i % driver->sizes);
        driver->start_event(driver->context, &handle, &event);
    }
}

static void run_v5(const struct driver *driver) {
    for (int i = 0; i < EVENTS; i++) {
        struct tuccl_event_v5 event = {.type = NCCL_PROFILE_COLLECTIVE_CALL};
        void *handle;
        event.collective.function = i % 3 == 0 ? "AllGather" : "AllReduce";
        event.collective.datatype = "ncclFloat16";
        event.collective.count = 1000 + (size_t)(i % driver->sizes);
        driver->start_event(driver->context, &handle, &event);
    }
}

static void start(struct driver *driver, void *library) {
    int activation = 0;
    if (driver->abi == 4) {
        const struct tuccl_profiler_v4 *profiler = dlsym(library, "ncclProfiler_v4");
        driver->start_event = profiler->start_event;
        profiler->init(&driver->context, &activation, NULL, 42, 1, 8, 0, NULL);
    } else {
        const struct tuccl_profiler_v5 *profiler = dlsym(library, "ncclProfiler_v5");
        driver->start_event = profiler->start_event;
        profiler->init(&driver->context, 42, &activation, NULL, 1, 8, 0, NULL);
    }
    if (activation == 0 || driver->context == NULL) {
        fprintf(stderr, "the plugin does not record: set TUCCL_RECORD to a directory\n");
        exit(1);
    }
}

int main(int count, char **arguments) {
    static double batch_ns[BATCHES];
    struct driver driver = {.sizes = 10};
    void *library = count >= 3 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        fprintf(stderr, "usage: bench_recording PLUGIN.so ABI [SIZES]\n");
        return 2;
    }
    driver.abi = atoi(arguments[2]);
    if (count > 3)
        driver.sizes = atoi(arguments[3]);
    if ((driver.abi != 4 && driver.abi != 5) || driver.sizes < 1 || driver.sizes > MOST_SIZES) {
        fprintf(stderr, "ABI is 4 or 5, SIZES from 1 to %d\n", MOST_SIZES);
        return 2;
    }
    start(&driver, library);
    for (int i = 0; i < BATCHES; i++) {
        double began = now_ns();
        if (driver.abi == 4)
            run_v4(&driver);
        else
            run_v5(&driver);
        batch_ns[i] = (now_ns() - began) / EVENTS;
    }
    double sum = 0;
    for (int i = 0; i < BATCHES; i++)
        sum += batch_ns[i];
    qsort(batch_ns, BATCHES, sizeof *batch_ns, ascending);
    printf(
        "ABI v%d, %d sizes: %.1f ns per call (median), %.1f mean, %.1f slowest batch; %.3f %% of "
        "a call of 10 us\n",
        driver.abi, driver.sizes, batch_ns[BATCHES / 2], sum / BATCHES, batch_ns[BATCHES - 1],
        sum / BATCHES / 100);
    return 0;
}
