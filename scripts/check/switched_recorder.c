/* A profiler plugin for check_recording.py: the plugin at TUCCL_RECORDER, with a switch.
 *
 * NCCL reads which events a plugin asks for at each call, so that a process can make calls with and
 * without the recorder in turn: processes differ from each other by more than recording costs.
 * For NCCL 2.28 and later. */
#include "profiler_abi.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>

#define EXPORTED __attribute__((visibility("default")))

static const struct tuccl_profiler_v5 *recorder;
/* NCCL's own variable, and what the recorder set it to. */
static int *asked_for;
static int of_recorder;

static int init(void **context, uint64_t communicator, int *activation,
                const char *communicator_name, int nodes, int ranks, int rank, void *logger) {
    const char *path = getenv("TUCCL_RECORDER");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    recorder = library != NULL ? dlsym(library, "ncclProfiler_v6") : NULL;
    if (recorder == NULL)
        return 1;
    int code = recorder->init(context, communicator, activation, communicator_name, nodes, ranks,
                              rank, logger);
    asked_for = activation;
    of_recorder = *activation;
    return code;
}

static int start_event(void *context, void **handle, void *event) {
    return recorder->start_event(context, handle, event);
}

static int stop_event(void *handle) {
    return recorder->stop_event(handle);
}

static int record_event_state(void *handle, int state, void *arguments) {
    return recorder->record_event_state(handle, state, arguments);
}

static int finalize(void *context) {
    return recorder->finalize(context);
}

/* Turn the recorder's events off or on; false: NCCL has not started it. */
EXPORTED bool switch_recorder(bool on);
bool switch_recorder(bool on) {
    if (asked_for == NULL)
        return false;
    *asked_for = on ? of_recorder : 0;
    return true;
}

EXPORTED const struct tuccl_profiler_v5 ncclProfiler_v5 = {
    "TuCCL with a switch", init, start_event, stop_event, record_event_state, finalize};
EXPORTED const struct tuccl_profiler_v5 ncclProfiler_v6 = {
    "TuCCL with a switch", init, start_event, stop_event, record_event_state, finalize};
