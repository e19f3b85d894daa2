/* A libtuccl-executor.so for tests without a GPU, over the stand-in of NCCL: it takes calls of an
 * operation that was chosen, or that TUCCL_BUNDLE has an entry for, whatever their size and ranks;
 * counts them, and lets NCCL do them, those of phases on many channels, so that they are fast.
 * Like the real one it knows no Simple patterns. With
 * STAND_IN_EXECUTOR_SPOILS its all_gather leaves out half of what it is to send, and with
 * STAND_IN_CHOICE_ABORTS a process that chooses dies. */
#include "bundle.h"
#include "program.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIMPLE = 2 };

static struct tuccl_entry_record chosen;
static bool has_chosen;
static uint64_t calls;
static struct tuccl_bundle bundle;
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

#define EXPORTED __attribute__((visibility("default")))

static void load(void) {
    char why[200] = "";
    const char *path = getenv("TUCCL_BUNDLE");
    if (path != NULL && path[0] != '\0' &&
        (tuccl_bundle_load(path, &bundle, why, sizeof why) != TUCCL_BUNDLE_GOOD ||
         (bundle.programs != NULL &&
          !tuccl_programs_check(bundle.programs, bundle.program_bytes, why, sizeof why)))) {
        fprintf(stderr, "%s %s\n", path, why);
        abort();
    }
}

EXPORTED const char *tuccl_executor_choose(const void *entry, size_t bytes) {
    has_chosen = false;
    if (getenv("STAND_IN_CHOICE_ABORTS") != NULL)
        abort();
    if (entry == NULL)
        return NULL;
    if (bytes != sizeof chosen)
        return "an entry has 48 bytes";
    memcpy(&chosen, entry, sizeof chosen);
    if (!tuccl_entry_is_sound(&chosen))
        return "the entry contradicts itself";
    has_chosen = true;
    return NULL;
}

EXPORTED bool tuccl_executor_is_called(void) {
    return true;
}

EXPORTED uint64_t tuccl_executor_calls(void) {
    return calls;
}

static void *find(const char *name) {
    void *nccl = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
    return dlsym(nccl, name);
}

static bool is_for(const struct tuccl_entry_record *entry, uint8_t operation, bool *has_phases) {
    struct tuccl_program program;
    if (bundle.programs == NULL || entry->schedule_protocol == SIMPLE ||
        !tuccl_programs_at(bundle.programs, entry->schedule, &program) ||
        program.header->operation != operation)
        return false;
    *has_phases |= program.header->nodes > 1;
    return true;
}

static void let_nccl_take_channels(bool many) {
    static char *own;
    const char *set = getenv("STAND_IN_CHANNELS");
    if (own == NULL)
        own = strdup(set != NULL ? set : "");
    setenv("STAND_IN_CHANNELS", many ? "8" : own, 1);
}

static bool takes(uint8_t operation) {
    pthread_once(&loaded, load);
    bool has_phases = false, taken = has_chosen && is_for(&chosen, operation, &has_phases);
    for (uint32_t i = 0; i < bundle.entry_count && !has_chosen; i++)
        taken |= is_for(&bundle.entries[i], operation, &has_phases);
    calls += taken;
    let_nccl_take_channels(has_phases);
    return taken;
}

EXPORTED int ncclAllReduce(const void *send, void *receive, size_t count, int type, int reduction,
                           void *communicator, void *stream) {
    int (*real)(const void *, void *, size_t, int, int, void *, void *);
    *(void **)&real = find("ncclAllReduce");
    (void)takes(TUCCL_ALL_REDUCE);
    return real(send, receive, count, type, reduction, communicator, stream);
}

EXPORTED int ncclAllGather(const void *send, void *receive, size_t count, int type,
                           void *communicator, void *stream) {
    int (*real)(const void *, void *, size_t, int, void *, void *);
    *(void **)&real = find("ncclAllGather");
    bool spoils = takes(TUCCL_ALL_GATHER) && getenv("STAND_IN_EXECUTOR_SPOILS") != NULL;
    return real(send, receive, spoils ? count / 2 : count, type, communicator, stream);
}

EXPORTED int ncclAlltoAll(const void *send, void *receive, size_t count, int type,
                          void *communicator, void *stream) {
    int (*real)(const void *, void *, size_t, int, void *, void *);
    *(void **)&real = find("ncclAlltoAll");
    (void)takes(TUCCL_ALLTOALL);
    return real(send, receive, count, type, communicator, stream);
}
