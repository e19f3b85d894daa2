/* One rank of a job as NCCL's profiler interface sees it: loads the plugin that
 * NCCL_PROFILER_PLUGIN names, takes one version of its structure, and tells it of calls.
 *
 *   play_profiler ABI RANK RANKS STEPS [plain|alone|threads|hostile|fork|kill|lost|idle]
 *
 * plain: communicators of all ranks and of pairs, which end as NCCL ends them. alone: without an
 * end, as a job that only exits. threads: eight threads call at once. hostile: what no NCCL does.
 * fork: a child goes on as a copy. kill: SIGKILL, more than a second after the first call. lost:
 * the directory is moved away. idle: a plugin that cannot record. */
#include "check.h"
#include "profiler_abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8, CALLS_OF_THREAD = 5000 };
static const uint64_t world = 0x1111, first_pair = 0x2220;

/* Versions differ in `init` alone. */
struct plugin {
    int abi;
    void *library;
    const struct tuccl_profiler_v1 *v1;
    const struct tuccl_profiler_v4 *v4;
    const struct tuccl_profiler_v5 *v5;
};

struct communicator {
    const struct plugin *plugin;
    void *context;
    uint64_t hash;
    int rank;
};

struct played_call {
    const char *function;
    unsigned number; /* Of ncclFunc_t. */
    const char *datatype;
    unsigned type;
    size_t element_bytes;
    size_t count;
    bool in_place;
    bool captured;
};

static const struct played_call gradient = {"AllReduce", 4, "ncclFloat32", 7, 4, 1000, true, false},
                                activation = {"AllReduce", 4,    "ncclBfloat16", 9,
                                              2,           2048, false,          false},
                                weights = {"AllGather", 2, "ncclFloat16", 6, 2, 512, true, false},
                                shard = {"ReduceScatter", 3, "ncclFloat32", 7, 4, 64, true, false},
                                begin = {"Broadcast", 0, "ncclInt64", 4, 8, 8, true, false},
                                token = {"AllReduce", 4, "ncclFloat16", 6, 2, 4096, true, true},
                                pair = {"AllReduce", 4, "ncclFloat16", 6, 2, 128, true, false},
                                message = {"Send", 6, "ncclFloat32", 7, 4, 100, false, false},
                                answer = {"Recv", 7, "ncclFloat32", 7, 4, 300, false, false};

static struct plugin load(int abi) {
    struct plugin plugin = {.abi = abi};
    const char *path = getenv("NCCL_PROFILER_PLUGIN");
    char symbol[32];
    CHECK(path != NULL);
    plugin.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (plugin.library == NULL)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(plugin.library != NULL);
    snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", abi);
    const void *structure = dlsym(plugin.library, symbol);
    CHECK(structure != NULL);
    plugin.v1 = structure;
    plugin.v4 = structure;
    plugin.v5 = structure;
    CHECK(strcmp(plugin.v1->name, "TuCCL") == 0);
    return plugin;
}

static int start(struct communicator *communicator, const struct plugin *plugin, uint64_t hash,
                 int rank, int ranks) {
    int activation_mask = 0x7FFFFFFF;
    *communicator = (struct communicator){plugin, NULL, hash, rank};
    int result;
    if (plugin->abi <= 3)
        result = plugin->v1->init(&communicator->context, &activation_mask);
    else if (plugin->abi == 4)
        result = plugin->v4->init(&communicator->context, &activation_mask, "a name", hash, 1,
                                  ranks, rank, NULL);
    else
        result = plugin->v5->init(&communicator->context, hash, &activation_mask, "a name", 1,
                                  ranks, rank, NULL);
    CHECK(result == 0);
    return activation_mask;
}

static void end(struct communicator *communicator) {
    CHECK(communicator->plugin->v1->finalize(communicator->context) == 0);
}

static int start_event(const struct communicator *communicator, void **handle, void *event) {
    return communicator->plugin->v1->start_event(communicator->context, handle, event);
}

/* NCCL's own structures are longer than the plugin's view of them. */
union any_event {
    struct tuccl_event_v1 v1;
    struct tuccl_event_v2 v2;
    struct tuccl_event_v4 v4;
    struct tuccl_event_v5 v5;
    char room[512];
};

static bool is_p2p(const struct played_call *call) {
    return call->number >= 6;
}

/* Buffers as NCCL gives them: in place, the rank's own part of the larger one. */
static void set_buffers(const struct played_call *call, int rank, const void **send,
                        void **receive) {
    static char buffer[1 << 20], apart[8];
    size_t offset = (size_t)rank * call->count * call->element_bytes;
    *send = call->in_place && call->number == 2 ? buffer + offset : buffer;
    *receive = !call->in_place ? apart : call->number == 3 ? buffer + offset : buffer;
}

static void fill(union any_event *event, int abi, const struct played_call *call,
                 const struct communicator *communicator) {
    const void *send;
    void *receive;
    /* Before the launch, NCCL turns these into bytes. */
    bool as_bytes = call->number == 0 || call->number == 2;
    size_t count = as_bytes ? call->count * call->element_bytes : call->count;
    const char *datatype = as_bytes ? "ncclInt8" : call->datatype;
    set_buffers(call, communicator->rank, &send, &receive);
    memset(event, 0x5A, sizeof *event);
    if (abi == 1 && is_p2p(call)) {
        event->v1.type = NCCL_PROFILE_P2P;
        event->v1.rank = communicator->rank;
        event->v1.p2p.communicator = communicator->hash;
        event->v1.p2p.function = (uint8_t)call->number;
        event->v1.p2p.datatype = (uint8_t)call->type;
        event->v1.p2p.count = call->count;
    } else if (abi == 1) {
        event->v1.type = NCCL_PROFILE_COLLECTIVE;
        event->v1.rank = communicator->rank;
        event->v1.collective.communicator = communicator->hash;
        event->v1.collective.function = (uint8_t)call->number;
        event->v1.collective.send = send;
        event->v1.collective.receive = receive;
        event->v1.collective.count = count;
        event->v1.collective.datatype = as_bytes ? 0 : (uint8_t)call->type;
        event->v1.collective.reduction = call->type == 9 ? 4 : 0;
    } else if (abi <= 3 && is_p2p(call)) {
        event->v2.type = NCCL_PROFILE_P2P;
        event->v2.rank = communicator->rank;
        event->v2.p2p.communicator = communicator->hash;
        event->v2.p2p.function = call->function;
        event->v2.p2p.datatype = call->datatype;
        event->v2.p2p.count = call->count;
    } else if (abi <= 3) {
        event->v2.type = NCCL_PROFILE_COLLECTIVE;
        event->v2.rank = communicator->rank;
        event->v2.collective.communicator = communicator->hash;
        event->v2.collective.function = call->function;
        event->v2.collective.send = send;
        event->v2.collective.receive = receive;
        event->v2.collective.count = count;
        event->v2.collective.datatype = datatype;
    } else if (abi == 4 && is_p2p(call)) {
        event->v4.type = NCCL_PROFILE_P2P;
        event->v4.p2p.function = call->function;
        event->v4.p2p.datatype = call->datatype;
        event->v4.p2p.count = call->count;
    } else if (abi == 4) {
        event->v4.type = NCCL_PROFILE_COLLECTIVE;
        event->v4.collective.function = call->function;
        event->v4.collective.send = send;
        event->v4.collective.receive = receive;
        event->v4.collective.count = count;
        event->v4.collective.datatype = datatype;
    } else if (is_p2p(call)) {
        event->v5.type = NCCL_PROFILE_P2P_CALL;
        event->v5.p2p.function = call->function;
        event->v5.p2p.count = call->count;
        event->v5.p2p.datatype = call->datatype;
        event->v5.p2p.captured = call->captured;
    } else {
        event->v5.type = NCCL_PROFILE_COLLECTIVE_CALL;
        event->v5.collective.function = call->function;
        event->v5.collective.count = call->count;
        event->v5.collective.datatype = call->datatype;
        event->v5.collective.captured = call->captured;
    }
}

/* NCCL before 2.28 tells of work only within a group that has a handle. */
static void play_group(const struct communicator *communicator) {
    union any_event event;
    void *handle = &event;
    memset(&event, 0, sizeof event);
    if (communicator->plugin->abi >= 5)
        event.v5.type = 1 << 8; /* A group of calls. */
    else
        event.v1.type = NCCL_PROFILE_GROUP;
    CHECK(start_event(communicator, &handle, &event) == 0);
    CHECK((handle != NULL) == (communicator->plugin->abi < 5 && communicator->context != NULL));
    if (handle != NULL)
        CHECK(communicator->plugin->v1->stop_event(handle) == 0);
}

static void play(const struct communicator *communicator, const struct played_call *call) {
    union any_event event;
    void *handle = &event;
    fill(&event, communicator->plugin->abi, call, communicator);
    CHECK(start_event(communicator, &handle, &event) == 0);
    CHECK(handle == NULL);
}

static void check_mask(const struct plugin *plugin, int activation) {
    CHECK(activation == (plugin->abi >= 5 ? (NCCL_PROFILE_COLLECTIVE_CALL | NCCL_PROFILE_P2P_CALL)
                                          : (NCCL_PROFILE_COLLECTIVE | NCCL_PROFILE_P2P)));
}

static void play_job(const struct plugin *plugin, int rank, int ranks, int steps, bool ends) {
    struct communicator all, two;
    check_mask(plugin, start(&all, plugin, world, rank, ranks));
    check_mask(plugin, start(&two, plugin, first_pair + (uint64_t)rank / 2, rank % 2, 2));
    play_group(&all);
    play(&all, &begin);
    for (int i = 0; i < 3; i++)
        play(&all, &token);
    for (int step = 0; step < steps; step++) {
        play(&all, &gradient);
        play(&all, &gradient);
        play(&all, &activation);
        play(&all, &weights);
        play(&all, &shard);
        play(&two, &pair);
        play(&all, &message);
        play(&all, &answer);
    }
    if (ends) {
        end(&two);
        end(&all);
    }
}

struct thread_work {
    struct communicator own;
    const struct communicator *shared;
};

static void *call_often(void *argument) {
    const struct thread_work *work = argument;
    struct played_call call = pair;
    for (int i = 0; i < CALLS_OF_THREAD; i++) {
        play(work->shared, &gradient);
        call.count = 1 + (size_t)(i % 50);
        play(&work->own, &call);
        play(work->shared, &call);
    }
    return NULL;
}

static void play_threads(const struct plugin *plugin, int rank, int ranks) {
    static struct thread_work work[THREADS];
    struct communicator shared;
    pthread_t threads[THREADS];
    start(&shared, plugin, world, rank, ranks);
    for (int i = 0; i < THREADS; i++) {
        start(&work[i].own, plugin, first_pair + (uint64_t)i, rank, ranks);
        work[i].shared = &shared;
        CHECK(pthread_create(&threads[i], NULL, call_often, &work[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        end(&work[i].own);
    end(&shared);
}

static void play_hostile(const struct plugin *plugin, int rank, int ranks) {
    struct communicator all, none = {plugin, NULL, 0, 0};
    struct played_call call = gradient;
    union any_event event;
    start(&all, plugin, world, rank, ranks);
    play_group(&none);
    play(&none, &gradient);
    end(&none);
    CHECK(start_event(&all, NULL, NULL) == 0);
    /* Names that no NCCL has, or none. */
    call.function = "AllReduceAndSomethingMuchLongerThanAnyNameOfNccl";
    call.number = 200;
    fill(&event, plugin->abi, &call, &all);
    CHECK(start_event(&all, NULL, &event) == 0);
    call = gradient;
    call.datatype = "ncclFloat4";
    call.type = 77;
    fill(&event, plugin->abi, &call, &all);
    CHECK(start_event(&all, NULL, &event) == 0);
    call.datatype = NULL;
    fill(&event, plugin->abi, &call, &all);
    CHECK(start_event(&all, NULL, &event) == 0);
    /* More sizes than the table has, the largest among them. */
    call = gradient;
    for (size_t i = 0; i < 6000; i++) {
        call.count = i + 1;
        play(&all, &call);
    }
    call.count = SIZE_MAX;
    play(&all, &call);
    call = message;
    call.count = SIZE_MAX;
    play(&all, &call);
    play(&all, &call);
    for (int i = 0; i < 1000; i++) {
        struct communicator more;
        start(&more, plugin, 0x9000 + (uint64_t)i, 0, 2);
        play(&more, &pair);
        end(&more);
        end(&more);
    }
    play(&all, &pair);
    end(&all);
    play(&all, &pair);
}

static void play_fork(const struct plugin *plugin, int rank, int ranks, int steps) {
    struct communicator all;
    start(&all, plugin, world, rank, ranks);
    play(&all, &gradient);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct communicator own;
        play(&all, &gradient);
        start(&own, plugin, 0x7777, 0, 2);
        CHECK(own.context == NULL);
        end(&all);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (int step = 1; step < steps; step++)
        play(&all, &gradient);
}

/* The directory is gone when the file is to be written again. */
static void play_lost(const struct plugin *plugin, int rank, int ranks) {
    const struct timespec pause = {.tv_sec = 1, .tv_nsec = 200000000};
    const char *directory = getenv("TUCCL_RECORD");
    char elsewhere[4096];
    struct communicator all;
    snprintf(elsewhere, sizeof elsewhere, "%s.elsewhere", directory);
    start(&all, plugin, world, rank, ranks);
    play(&all, &gradient);
    CHECK(rename(directory, elsewhere) == 0);
    nanosleep(&pause, NULL);
    play(&all, &gradient);
    play(&all, &gradient);
    end(&all);
}

static void play_until_killed(const struct plugin *plugin, int rank, int ranks, int steps) {
    const struct timespec pause = {.tv_sec = 1, .tv_nsec = 200000000};
    struct communicator all;
    start(&all, plugin, world, rank, ranks);
    for (int step = 1; step < steps; step++)
        play(&all, &gradient);
    nanosleep(&pause, NULL);
    play(&all, &gradient);
    raise(SIGKILL);
}

int main(int count, char **arguments) {
    CHECK(count == 5 || count == 6);
    int rank = atoi(arguments[2]), ranks = atoi(arguments[3]), steps = atoi(arguments[4]);
    const char *mode = count == 6 ? arguments[5] : "plain";
    struct plugin plugin = load(atoi(arguments[1]));
    if (strcmp(mode, "threads") == 0)
        play_threads(&plugin, rank, ranks);
    else if (strcmp(mode, "hostile") == 0)
        play_hostile(&plugin, rank, ranks);
    else if (strcmp(mode, "fork") == 0)
        play_fork(&plugin, rank, ranks, steps);
    else if (strcmp(mode, "lost") == 0)
        play_lost(&plugin, rank, ranks);
    else if (strcmp(mode, "kill") == 0)
        play_until_killed(&plugin, rank, ranks, steps);
    else if (strcmp(mode, "idle") == 0) {
        struct communicator all;
        CHECK(start(&all, &plugin, world, rank, ranks) == 0 && all.context == NULL);
        play(&all, &gradient);
        end(&all);
    } else
        play_job(&plugin, rank, ranks, steps, strcmp(mode, "alone") != 0);
    /* As NCCL does with the last communicator. */
    CHECK(dlclose(plugin.library) == 0);
    return 0;
}
