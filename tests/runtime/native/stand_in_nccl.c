/* A libnccl.so.2 for tests without a GPU: real collectives over shared memory of one host, and a
 * tuner plugin loaded and asked as NCCL 2.28 does it (ABI v5), or as NCCL 2.30 (v6) and 2.32.6 (v7)
 * if it is one of these: they ask about all calls of a group, then about the chunks of each part.
 *
 * Ring runs everywhere, tree for all_reduce, nothing else; a ring adds in an order that
 * depends on an element's place. One channel is slow, so that a forced
 * count shows: 3 ms a call, or STAND_IN_SLOW_MS. So much does each NAME=VALUE of
 * STAND_IN_SLOW_UNLESS cost every call, too, if the environment has it not; under the one of
 * STAND_IN_CORRUPTS_UNDER the operation below is wrong in any algorithm, and there alone.
 * STAND_IN_CHANNELS is what NCCL itself takes,
 * many if it is not set. Ranks of another NCCL_HOSTID are of another node. STAND_IN_CORRUPTS names
 * an operation (as in nccl-tests) whose output gets a wrong byte with tree, or in any algorithm
 * where the operation has no tree; on every host, or on that of STAND_IN_CORRUPTS_HOST alone.
 * STAND_IN_SUMS_FOR_AVERAGES names one whose averages are sums with tree, or in any algorithm if
 * the operation has no tree. NCCL_CONF_FILE is read as NCCL reads it. STAND_IN_ALLOWS names the
 * pairs of algorithm and protocol that the machine allows, such as `ring/LL nvls/Simple`, where an
 * operation has them. From STAND_IN_LEAVES_LL_AT bytes on, Simple is estimated cheaper than LL.
 * STAND_IN_WANTS_CHUNK is the size of chunks without which every call is slow.
 * STAND_IN_WITHOUT_MULTICAST is the rank that has none, or "all". With STAND_IN_FAST_WINDOWS no
 * call that sends from a window is slow. */
#include "tuner_abi.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_RANKS = 8,
    MOST_HELD = 64,
    SLOT_BYTES = 1 << 20,
    ALLTOALL = 5,
    SYSTEM_ERROR = 2,
    INVALID_ARGUMENT = 4,
    SUM = 0,
    AVERAGE = 4
};

struct meeting {
    atomic_int arrived, generation;
    unsigned char slot[MOST_RANKS][SLOT_BYTES];
};

struct communicator {
    struct meeting *meeting;
    int ranks, rank;
    char name[64];
    const struct tuccl_tuner_v6 *tuner; /* v5 lacks the last member, v7 has the same. */
    bool asks_about_chunks;
    void *context;
    bool shares; /* Its meeting, with others of this process. */
    bool multicasts;
    int apart; /* Ranks of the parent between its first two: they make a ring slower. */
};

struct id {
    char internal[128];
};

struct work {
    struct communicator *communicator;
    int operation, type;
    bool averages;
    const unsigned char *send;
    unsigned char *receive;
    size_t count;
    int algorithm, protocol, nchannels;
    size_t chunk_bytes;
};

static const char *const names[] = {"broadcast",      "reduce",     "all_gather",
                                    "reduce_scatter", "all_reduce", "alltoall"};
static const size_t bytes_of_type[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

#ifndef STAND_IN_VERSION
#define STAND_IN_VERSION 22809
#endif

int ncclGetVersion(int *version) {
    const char *said = getenv("STAND_IN_NCCL_VERSION");
    *version = said != NULL ? atoi(said) : STAND_IN_VERSION;
    return NCCL_SUCCESS;
}

const char *ncclGetErrorString(int result) {
    return result == NCCL_INVALID_USAGE ? "invalid usage" : "stand-in error";
}

const char *ncclGetLastError(const struct communicator *communicator) {
    (void)communicator;
    return "";
}

int ncclGetUniqueId(struct id *id) {
    static atomic_int made;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, 40, "/tuccl-stand-in-%d-%d", (int)getpid(), atomic_fetch_add(&made, 1));
    shm_unlink(id->internal); /* What a killed process of this number left. */
    return NCCL_SUCCESS;
}

static void meet(const struct communicator *communicator) {
    struct meeting *meeting = communicator->meeting;
    int generation = atomic_load(&meeting->generation);
    if (atomic_fetch_add(&meeting->arrived, 1) + 1 == communicator->ranks) {
        atomic_store(&meeting->arrived, 0);
        atomic_fetch_add(&meeting->generation, 1);
        return;
    }
    const struct timespec moment = {0, 20000};
    for (int tries = 0; atomic_load(&meeting->generation) == generation; tries++)
        if (tries < 20)
            sched_yield();
        else
            nanosleep(&moment, NULL);
}

/* Into the file of NCCL_DEBUG_FILE, which is one per process where the name ends in %p. */
static void write_log(int level, unsigned long flags, const char *file, int line,
                      const char *format, ...) {
    (void)level, (void)flags, (void)file, (void)line;
    const char *said = getenv("NCCL_DEBUG_FILE");
    char path[512];
    if (said == NULL || strlen(said) < 2 || strcmp(said + strlen(said) - 2, "%p") != 0)
        return;
    snprintf(path, sizeof path, "%.*s%d", (int)strlen(said) - 2, said, (int)getpid());
    FILE *log = fopen(path, "a");
    if (log == NULL)
        return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(log, format, arguments);
    va_end(arguments);
    fputc('\n', log);
    fclose(log);
}

/* Ranks of one NCCL_HOSTID, by which NCCL tells hosts apart, are a node. */
static struct tuccl_nvl_domains_v5 meet_nodes(const struct communicator *communicator) {
    unsigned char (*slot)[SLOT_BYTES] = communicator->meeting->slot;
    const char *own = getenv("NCCL_HOSTID");
    struct tuccl_nvl_domains_v5 nodes = {0, communicator->ranks, 0};
    snprintf((char *)slot[communicator->rank], 64, "%s", own != NULL ? own : "");
    meet(communicator);
    for (int rank = 0; rank < communicator->ranks; rank++) {
        int before = 0, alike = 0;
        for (int other = 0; other < communicator->ranks; other++) {
            bool same = strcmp((char *)slot[other], (char *)slot[rank]) == 0;
            before += same && other < rank;
            alike += same;
        }
        nodes.domains += before == 0;
        nodes.min_ranks_per_domain =
            alike < nodes.min_ranks_per_domain ? alike : nodes.min_ranks_per_domain;
        nodes.max_ranks_per_domain =
            alike > nodes.max_ranks_per_domain ? alike : nodes.max_ranks_per_domain;
    }
    meet(communicator);
    return nodes;
}

/* As NCCL 2.30 (src/init.cc), which takes the least of all ranks' channels of NVLS. */
static bool meet_multicast(const struct communicator *communicator) {
    unsigned char (*slot)[SLOT_BYTES] = communicator->meeting->slot;
    const char *without = getenv("STAND_IN_WITHOUT_MULTICAST");
    slot[communicator->rank][0] =
        without == NULL || (strcmp(without, "all") != 0 && atoi(without) != communicator->rank);
    meet(communicator);
    bool all = true;
    for (int rank = 0; rank < communicator->ranks; rank++)
        all = all && slot[rank][0];
    meet(communicator);
    return all;
}

/* As NCCL: without a plugin that can be loaded it goes on by itself; 2.27.3 takes no paths. */
static int load_tuner(struct communicator *communicator, const struct tuccl_nvl_domains_v5 *nodes) {
    const char *path = getenv("NCCL_TUNER_PLUGIN");
    int version;
    ncclGetVersion(&version);
    bool takes = path != NULL && (version != 22703 || strchr(path, '/') == NULL);
    void *library = takes ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL)
        return NCCL_SUCCESS;
    communicator->asks_about_chunks = version >= 23000;
    communicator->tuner = dlsym(library, version >= 23206   ? "ncclTunerPlugin_v7"
                                         : version >= 23000 ? "ncclTunerPlugin_v6"
                                                            : "ncclTunerPlugin_v5");
    return communicator->tuner->init(&communicator->context, 7, (size_t)communicator->ranks,
                                     (size_t)nodes->domains, write_log, nodes, NULL);
}

static void note_join(void) {
    const char *path = getenv("STAND_IN_ORDER");
    FILE *order = path != NULL ? fopen(path, "a") : NULL;
    if (order != NULL) {
        fprintf(order, "%ld join 0\n", (long)getpid());
        fclose(order);
    }
}

/* As NCCL 2.28 (src/misc/param.cc): what the environment has stays. */
static void read_configuration(void) {
    const char *path = getenv("NCCL_CONF_FILE");
    FILE *file = path != NULL ? fopen(path, "r") : NULL;
    char line[2048];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *value = strchr(line, '=');
        if (line[0] == '#' || value == NULL)
            continue;
        *value++ = '\0';
        value[strcspn(value, "\n")] = '\0';
        setenv(line, value, 0);
    }
    if (file != NULL)
        fclose(file);
}

int ncclCommInitRank(struct communicator **made, int ranks, struct id id, int rank) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_configuration);
    note_join();
    if (ranks > MOST_RANKS)
        return INVALID_ARGUMENT;
    int file = shm_open(id.internal, O_CREAT | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, sizeof(struct meeting)) != 0)
        return SYSTEM_ERROR;
    struct communicator *communicator = calloc(1, sizeof *communicator);
    communicator->meeting =
        mmap(NULL, sizeof(struct meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    communicator->ranks = ranks;
    communicator->rank = rank;
    snprintf(communicator->name, sizeof communicator->name, "%.60s", id.internal);
    *made = communicator;
    struct tuccl_nvl_domains_v5 nodes = meet_nodes(communicator);
    communicator->multicasts = meet_multicast(communicator);
    int result = load_tuner(communicator, &nodes);
    if (result != NCCL_SUCCESS)
        return result;
    meet(communicator);
    shm_unlink(communicator->name);
    return NCCL_SUCCESS;
}

/* A place for ranks to meet within this process. */
static struct meeting *make_meeting(void) {
    return mmap(NULL, sizeof(struct meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
}

int ncclCommInitAll(struct communicator **made, int ranks, const int *devices) {
    (void)devices;
    for (int rank = 0; rank < ranks; rank++) {
        made[rank] = calloc(1, sizeof *made[rank]);
        made[rank]->meeting = rank == 0 ? make_meeting() : made[0]->meeting;
        made[rank]->ranks = ranks;
        made[rank]->rank = rank;
        made[rank]->shares = true;
    }
    return NCCL_SUCCESS;
}

/* Ranks of a colour in the parent's order; a key other than the rank is not followed. */
int ncclCommSplit(struct communicator *parent, int colour, int key, struct communicator **made,
                  const void *config) {
    (void)key, (void)config;
    struct meeting *meeting = parent->meeting;
    int first = parent->ranks, second = parent->ranks, ranks = 0, before = 0;
    memcpy(meeting->slot[parent->rank], &colour, sizeof colour);
    meet(parent);
    for (int rank = 0; rank < parent->ranks; rank++) {
        int other;
        memcpy(&other, meeting->slot[rank], sizeof other);
        if (other == colour && first < rank && rank < second)
            second = rank;
        first = other == colour && rank < first ? rank : first;
        ranks += other == colour;
        before += other == colour && rank < parent->rank;
    }
    meet(parent);
    struct id id;
    if (first == parent->rank) {
        ncclGetUniqueId(&id);
        memcpy(meeting->slot[first], &id, sizeof id);
    }
    meet(parent);
    memcpy(&id, meeting->slot[first], sizeof id);
    meet(parent);
    int result = ncclCommInitRank(made, ranks, id, before);
    if (result == NCCL_SUCCESS && ranks > 1)
        (*made)->apart = second - first - 1;
    return result;
}

int ncclCommDestroy(struct communicator *communicator) {
    if (communicator->tuner != NULL)
        communicator->tuner->finalize(communicator->context);
    if (!communicator->shares)
        munmap(communicator->meeting, sizeof(struct meeting));
    free(communicator);
    return NCCL_SUCCESS;
}

int ncclCommAbort(struct communicator *communicator) {
    return ncclCommDestroy(communicator);
}

int ncclCommCount(const struct communicator *communicator, int *ranks) {
    *ranks = communicator->ranks;
    return NCCL_SUCCESS;
}

int ncclCommUserRank(const struct communicator *communicator, int *rank) {
    *rank = communicator->rank;
    return NCCL_SUCCESS;
}

int ncclCommCuDevice(const struct communicator *communicator, int *device) {
    *device = communicator->rank;
    return NCCL_SUCCESS;
}

int ncclCommGetAsyncError(const struct communicator *communicator, int *error) {
    (void)communicator;
    *error = NCCL_SUCCESS;
    return NCCL_SUCCESS;
}

static float from_half(uint16_t half) {
    int exponent = (half >> 10) & 31, fraction = half & 1023;
    if (exponent == 0 && fraction == 0)
        return 0;
    uint32_t bits = (uint32_t)(exponent - 15 + 127) << 23 | (uint32_t)fraction << 13 |
                    (uint32_t)(half & 0x8000) << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t to_half(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7FFFFFFF;
    if (bits < (127 - 14) << 23) /* Subnormal, of which sums of data here have none but zero. */
        return sign;
    bits += 0xFFF + (bits >> 13 & 1);
    return (uint16_t)(sign | ((bits >> 13) - ((127 - 15) << 10)));
}

static float from_upper_half(uint16_t upper) {
    uint32_t bits = (uint32_t)upper << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t to_upper_half(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static float wide_of(int type, const unsigned char *part) {
    uint16_t half;
    memcpy(&half, part, sizeof half);
    return type == 6 ? from_half(half) : from_upper_half(half);
}

#define ADD(type)                                                                                  \
    do {                                                                                           \
        type a, b = 0;                                                                             \
        memcpy(&a, sum, sizeof a);                                                                 \
        if (part != NULL)                                                                          \
            memcpy(&b, part, sizeof b);                                                            \
        a = (type)((a + b) / (type)ranks);                                                         \
        memcpy(sum, &a, sizeof a);                                                                 \
    } while (0)

/* Adds a part, if there is one, and divides by a number of ranks. By ncclDataType_t; signed and
 * unsigned sums have the same bits, and no average here is of numbers below zero. */
static void add(int type, unsigned char *sum, const unsigned char *part, int ranks) {
    if (type == 6 || type == 9) {
        float wide = wide_of(type, sum) + (part != NULL ? wide_of(type, part) : 0);
        wide /= (float)ranks;
        uint16_t half = type == 6 ? to_half(wide) : to_upper_half(wide);
        memcpy(sum, &half, sizeof half);
    } else if (type == 7)
        ADD(float);
    else if (type == 8)
        ADD(double);
    else if (type <= 1)
        ADD(uint8_t);
    else if (type <= 3)
        ADD(uint32_t);
    else
        ADD(uint64_t);
}

/* The sum of the parts that all ranks have put at `offset`. As in NCCL a ring begins each chunk at
 * another rank and rounds at each; a tree adds in the order of ranks, and rounds once at last. */
static void add_up(const struct work *work, bool divides, size_t i, size_t offset,
                   unsigned char *sum) {
    unsigned char (*slot)[SLOT_BYTES] = work->communicator->meeting->slot;
    size_t bytes = bytes_of_type[work->type], ranks = (size_t)work->communicator->ranks;
    bool is_tree = work->algorithm == NCCL_ALGO_TREE;
    size_t first = is_tree ? 0 : i / 64 % ranks;
    bool is_wide = is_tree && (work->type == 6 || work->type == 9);
    float wide = 0;
    memcpy(sum, slot[first] + offset, bytes);
    for (size_t k = 0; k < ranks; k++) {
        const unsigned char *part = slot[(first + k) % ranks] + offset;
        if (is_wide)
            wide += wide_of(work->type, part);
        else if (k > 0)
            add(work->type, sum, part, 1);
    }
    uint16_t half = work->type == 6 ? to_half(wide) : to_upper_half(wide);
    if (is_wide)
        memcpy(sum, &half, sizeof half);
    if (divides)
        add(work->type, sum, NULL, (int)ranks);
}

static bool forgets_to_divide(const struct work *work) {
    const char *forgotten = getenv("STAND_IN_SUMS_FOR_AVERAGES");
    return forgotten != NULL && strcmp(forgotten, names[work->operation]) == 0 &&
           (work->operation != NCCL_FUNC_ALL_REDUCE || work->algorithm == NCCL_ALGO_TREE);
}

/* The elements from number `first` of the send buffers on, which are in every rank's slot. */
static void take(const struct work *work, size_t first, size_t elements) {
    const struct communicator *communicator = work->communicator;
    unsigned char (*slot)[SLOT_BYTES] = communicator->meeting->slot;
    size_t bytes = bytes_of_type[work->type], begin = first, end = first + elements, before = 0;
    if (work->operation == NCCL_FUNC_REDUCE_SCATTER || work->operation == ALLTOALL) {
        before = (size_t)communicator->rank * work->count;
        begin = begin > before ? begin : before;
        end = end < before + work->count ? end : before + work->count;
    }
    if (begin >= end || (work->operation == NCCL_FUNC_REDUCE && communicator->rank != 0))
        return;
    size_t offset = (begin - first) * bytes, size = (end - begin) * bytes;
    unsigned char *into = work->receive + (begin - before) * bytes;
    if (work->operation == NCCL_FUNC_ALL_GATHER || work->operation == ALLTOALL) {
        for (size_t rank = 0; rank < (size_t)communicator->ranks; rank++)
            memcpy(into + rank * work->count * bytes, slot[rank] + offset, size);
    } else if (work->operation == NCCL_FUNC_BROADCAST) {
        memcpy(into, slot[0] + offset, size);
    } else {
        bool divides = work->averages && !forgets_to_divide(work);
        for (size_t i = begin; i < end; i++, offset += bytes, into += bytes)
            add_up(work, divides, i, offset, into);
    }
}

/* Number of the pairs `NAME=VALUE`, between spaces in a variable, that the environment lacks. */
static int lacking(const char *stating) {
    const char *stated = getenv(stating);
    char pairs[256], *next = NULL;
    int lacked = 0;
    snprintf(pairs, sizeof pairs, "%s", stated != NULL ? stated : "");
    for (char *pair = strtok_r(pairs, " ", &next); pair; pair = strtok_r(NULL, " ", &next)) {
        char *wanted = strchr(pair, '=');
        *wanted++ = '\0';
        const char *value = getenv(pair);
        lacked += value == NULL || strcmp(value, wanted) != 0;
    }
    return lacked;
}

static void spoil(const struct work *work) {
    const char *spoiled = getenv("STAND_IN_CORRUPTS"), *host = getenv("STAND_IN_CORRUPTS_HOST");
    const char *own = getenv("NCCL_HOSTID");
    if (host != NULL && (own == NULL || strcmp(own, host) != 0))
        return;
    if (lacking("STAND_IN_CORRUPTS_UNDER") > 0)
        return;
    bool has_tree =
        work->operation == NCCL_FUNC_ALL_REDUCE && getenv("STAND_IN_CORRUPTS_UNDER") == NULL;
    if (spoiled != NULL && strcmp(spoiled, names[work->operation]) == 0 &&
        (!has_tree || work->algorithm == NCCL_ALGO_TREE))
        work->receive[(work->count - 1) * bytes_of_type[work->type]] ^= 1;
}

enum { MOST_WINDOWS = 64 };
static pthread_mutex_t windows_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct window {
    const unsigned char *begin;
    size_t bytes;
} windows[MOST_WINDOWS];

static bool is_in_window(const unsigned char *address) {
    bool is_in = false;
    pthread_mutex_lock(&windows_mutex);
    for (int i = 0; i < MOST_WINDOWS; i++)
        is_in |= windows[i].begin != NULL && address >= windows[i].begin &&
                 address < windows[i].begin + windows[i].bytes;
    pthread_mutex_unlock(&windows_mutex);
    return is_in;
}

/* The stand-in for CUDA waits, or only counts the time. */
static void pause_after(const struct work *work) {
    const char *slow_ms = getenv("STAND_IN_SLOW_MS");
    long slow_ns = 1000000 * (slow_ms == NULL ? 3 : strtol(slow_ms, NULL, 10));
    const char *wanted = getenv("STAND_IN_WANTS_CHUNK");
    int slow = (work->nchannels == 1) + lacking("STAND_IN_SLOW_UNLESS");
    slow += wanted != NULL && work->chunk_bytes != strtoull(wanted, NULL, 10);
    if (getenv("STAND_IN_FAST_WINDOWS") != NULL && is_in_window(work->send))
        slow = 0;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void (*spend)(long);
    *(void **)&spend = cuda != NULL ? dlsym(cuda, "stand_in_spend") : NULL;
    if (spend != NULL)
        spend(slow > 0 ? slow * slow_ns : 20000);
}

static void run(void *argument) {
    const struct work *work = argument;
    const struct communicator *communicator = work->communicator;
    bool parts = work->operation == NCCL_FUNC_REDUCE_SCATTER || work->operation == ALLTOALL;
    size_t bytes = bytes_of_type[work->type], per_slot = SLOT_BYTES / bytes;
    size_t elements = work->count * (parts ? (size_t)communicator->ranks : 1);
    for (size_t done = 0; done < elements; done += per_slot) {
        size_t here = elements - done < per_slot ? elements - done : per_slot;
        memcpy(communicator->meeting->slot[communicator->rank], work->send + done * bytes,
               here * bytes);
        meet(communicator);
        take(work, done, here);
        meet(communicator);
    }
    spoil(work);
    pause_after(work);
}

/* Channels that NCCL itself takes, where the environment does not say; 0: many. */
#ifndef STAND_IN_OWN_CHANNELS
#define STAND_IN_OWN_CHANNELS 0
#endif

/* Whether the operation has an algorithm at all (NCCL 2.30 src/graph/tuning.cc). */
static bool has_algorithm(int operation, int algorithm) {
    bool halves = operation == NCCL_FUNC_ALL_GATHER || operation == NCCL_FUNC_REDUCE_SCATTER;
    if (algorithm == NCCL_ALGO_PAT)
        return halves;
    return operation == NCCL_FUNC_ALL_REDUCE || algorithm == NCCL_ALGO_RING ||
           (halves && (algorithm == NCCL_ALGO_NVLS || algorithm == NCCL_ALGO_COLLNET_DIRECT));
}

static bool machine_allows(int operation, int algorithm, int protocol) {
    static const char *const algorithms[] = {
        "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
    static const char *const protocols[] = {"LL", "LL128", "Simple"};
    const char *allowed = getenv("STAND_IN_ALLOWS");
    if (allowed == NULL)
        return algorithm == NCCL_ALGO_RING || algorithm == NCCL_ALGO_TREE ||
               (algorithm == NCCL_ALGO_PAT && operation == NCCL_FUNC_ALL_GATHER);
    char pairs[512], pair[64];
    snprintf(pairs, sizeof pairs, " %s ", allowed);
    snprintf(pair, sizeof pair, " %s/%s ", algorithms[algorithm], protocols[protocol]);
    return strstr(pairs, pair) != NULL;
}

/* A tuner is told the larger of the two buffers. */
static size_t told_bytes(const struct work *work) {
    size_t bytes = work->count * bytes_of_type[work->type];
    bool halves =
        work->operation == NCCL_FUNC_ALL_GATHER || work->operation == NCCL_FUNC_REDUCE_SCATTER;
    return halves ? bytes * (size_t)work->communicator->ranks : bytes;
}

/* As NCCL 2.30 (calcCollChunking of src/enqueue.cc) for ring and tree: asked about each channel's
 * part, bounded by the protocol's buffer, rounded down to its grain. */
static int cut(struct work *work) {
    static const size_t grains[] = {16, 1920, 512};
    const struct communicator *communicator = work->communicator;
    const char *said = getenv("NCCL_BUFFSIZE");
    size_t buffer = said != NULL ? strtoull(said, NULL, 10) : 4 << 20, bytes = told_bytes(work);
    bool in_steps = work->operation >= NCCL_FUNC_ALL_GATHER;
    size_t most = buffer / 8 * (work->algorithm == NCCL_ALGO_RING && in_steps ? 4 : 1);
    if (work->protocol == NCCL_PROTO_LL)
        most = 524288 / 8 / 2;
    if (work->protocol == NCCL_PROTO_LL128)
        most = 4915200 / 8 / 16 * 15;
    size_t channels = work->nchannels > 0 ? (size_t)work->nchannels : 2;
    work->chunk_bytes = most;
    if (!communicator->asks_about_chunks || work->operation == ALLTOALL)
        return NCCL_SUCCESS;
    const size_t parts[] = {bytes / channels, bytes % channels + 1, bytes / channels + 1};
    for (int i = 0; i < 3; i++) {
        size_t chunk = most;
        communicator->tuner->get_chunk_size(communicator->context, work->operation, parts[i],
                                            work->algorithm, work->protocol, 1, &chunk);
        chunk = chunk < most ? chunk : most;
        work->chunk_bytes = chunk / grains[work->protocol] * grains[work->protocol];
        if (work->chunk_bytes == 0) /* NCCL divides by it. */
            return INVALID_ARGUMENT;
    }
    return NCCL_SUCCESS;
}

static void choose(struct work *work) {
    struct communicator *communicator = work->communicator;
    float cost[NCCL_ALGORITHMS][NCCL_PROTOCOLS];
    size_t bytes = told_bytes(work);
    const char *leaves_ll = getenv("STAND_IN_LEAVES_LL_AT");
    bool avoids_ll = leaves_ll != NULL && bytes >= strtoull(leaves_ll, NULL, 10);
    for (int a = 0; a < NCCL_ALGORITHMS; a++)
        for (int p = 0; p < NCCL_PROTOCOLS; p++) {
            bool runs =
                has_algorithm(work->operation, a) && machine_allows(work->operation, a, p) &&
                (communicator->multicasts || (a != NCCL_ALGO_NVLS && a != NCCL_ALGO_NVLS_TREE));
            bool avoided = avoids_ll && p == NCCL_PROTO_LL;
            cost[a][p] = runs ? (float)(10 + a + p + (avoided ? 100 : 0)) : -1.0f;
        }
    cost[NCCL_ALGO_RING][NCCL_PROTO_SIMPLE] *= (float)(1 + communicator->apart);
    work->nchannels = 0;
    if (communicator->tuner != NULL && work->operation != ALLTOALL)
        communicator->tuner->get_coll_info(communicator->context, work->operation, bytes, 1,
                                           (float **)(void *)cost, NCCL_ALGORITHMS, NCCL_PROTOCOLS,
                                           0, &work->nchannels);
    float best = 1e9f;
    for (int a = 0; a < NCCL_ALGORITHMS; a++)
        for (int p = 0; p < NCCL_PROTOCOLS; p++)
            if (cost[a][p] >= 0 && cost[a][p] < best) {
                best = cost[a][p];
                work->algorithm = a;
                work->protocol = p;
            }
    const char *own_channels = getenv("STAND_IN_CHANNELS");
    if (work->nchannels == 0)
        work->nchannels = own_channels != NULL ? atoi(own_channels) : STAND_IN_OWN_CHANNELS;
}

/* What a thread's group holds back: at its end every call has a thread, as ranks of one process
 * wait for one another. Calls of one communicator go one after the other. */
static _Thread_local struct {
    int depth, count;
    struct held {
        struct work work;
        void *stream;
        pthread_t thread;
        struct held *before;
    } held[MOST_HELD];
} group;

static int put_now(const struct work *work, void *stream) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*put)(void *, void (*)(void *), const void *, size_t);
    if (cuda == NULL)
        return SYSTEM_ERROR;
    *(void **)&put = dlsym(cuda, "stand_in_enqueue");
    return put(stream, run, work, sizeof *work) == 0 ? NCCL_SUCCESS : SYSTEM_ERROR;
}

static void *put_held(void *argument) {
    struct held *held = argument;
    if (held->before != NULL)
        pthread_join(held->before->thread, NULL);
    (void)put_now(&held->work, held->stream);
    return NULL;
}

int ncclGroupStart(void) {
    group.depth++;
    return NCCL_SUCCESS;
}

int ncclGroupEnd(void) {
    if (--group.depth > 0)
        return NCCL_SUCCESS;
    int result = NCCL_SUCCESS;
    for (int i = 0; i < group.count; i++)
        choose(&group.held[i].work);
    for (int i = 0; i < group.count; i++)
        result = result == NCCL_SUCCESS ? cut(&group.held[i].work) : result;
    if (result != NCCL_SUCCESS)
        return result;
    for (int i = 0; i < group.count; i++) {
        struct held *held = &group.held[i];
        for (int j = 0; j < i; j++)
            if (group.held[j].work.communicator == held->work.communicator)
                held->before = &group.held[j];
        pthread_create(&held->thread, NULL, put_held, held);
    }
    for (int i = 0; i < group.count; i++) {
        bool joined = false;
        for (int j = i + 1; j < group.count; j++)
            joined |= group.held[j].before == &group.held[i];
        if (!joined)
            pthread_join(group.held[i].thread, NULL);
    }
    group.count = 0;
    return NCCL_SUCCESS;
}

/* Of ncclRedOp_t sum and average, to which operations without a reduction are like a sum. */
static int enqueue(struct communicator *communicator, int operation, const void *send,
                   void *receive, size_t count, int type, int reduction, void *stream) {
    if (reduction != SUM && reduction != AVERAGE)
        return INVALID_ARGUMENT;
    struct work work = {.communicator = communicator,
                        .operation = operation,
                        .averages = reduction == AVERAGE,
                        .type = type,
                        .send = send,
                        .receive = receive,
                        .count = count};
    if (group.depth == 0) {
        choose(&work);
        int result = cut(&work);
        return result == NCCL_SUCCESS ? put_now(&work, stream) : result;
    }
    if (group.count == MOST_HELD)
        return SYSTEM_ERROR;
    group.held[group.count++] = (struct held){.work = work, .stream = stream};
    return NCCL_SUCCESS;
}

int ncclAllReduce(const void *send, void *receive, size_t count, int type, int reduction,
                  struct communicator *communicator, void *stream) {
    return enqueue(communicator, NCCL_FUNC_ALL_REDUCE, send, receive, count, type, reduction,
                   stream);
}

int ncclReduceScatter(const void *send, void *receive, size_t count, int type, int reduction,
                      struct communicator *communicator, void *stream) {
    return enqueue(communicator, NCCL_FUNC_REDUCE_SCATTER, send, receive, count, type, reduction,
                   stream);
}

int ncclAllGather(const void *send, void *receive, size_t count, int type,
                  struct communicator *communicator, void *stream) {
    return enqueue(communicator, NCCL_FUNC_ALL_GATHER, send, receive, count, type, SUM, stream);
}

int ncclBroadcast(const void *send, void *receive, size_t count, int type, int root,
                  struct communicator *communicator, void *stream) {
    return root == 0
               ? enqueue(communicator, NCCL_FUNC_BROADCAST, send, receive, count, type, SUM, stream)
               : INVALID_ARGUMENT;
}

int ncclReduce(const void *send, void *receive, size_t count, int type, int reduction, int root,
               struct communicator *communicator, void *stream) {
    return root == 0 ? enqueue(communicator, NCCL_FUNC_REDUCE, send, receive, count, type,
                               reduction, stream)
                     : INVALID_ARGUMENT;
}

int ncclAlltoAll(const void *send, void *receive, size_t count, int type,
                 struct communicator *communicator, void *stream) {
    return enqueue(communicator, ALLTOALL, send, receive, count, type, SUM, stream);
}

int ncclMemAlloc(void **memory, size_t bytes) {
    *memory = malloc(bytes);
    return *memory != NULL ? 0 : 1;
}

int ncclMemFree(void *memory) {
    free(memory);
    return 0;
}

int ncclCommWindowRegister(struct communicator *communicator, void *memory, size_t bytes,
                           void **window, int flags) {
    (void)communicator;
    *window = NULL;
    pthread_mutex_lock(&windows_mutex);
    for (int i = 0; flags == 1 && *window == NULL && i < MOST_WINDOWS; i++) {
        if (windows[i].begin != NULL)
            continue;
        windows[i] = (struct window){memory, bytes};
        *window = &windows[i];
    }
    pthread_mutex_unlock(&windows_mutex);
    return *window != NULL ? 0 : INVALID_ARGUMENT;
}

int ncclCommWindowDeregister(struct communicator *communicator, struct window *window) {
    (void)communicator;
    pthread_mutex_lock(&windows_mutex);
    *window = (struct window){NULL, 0};
    pthread_mutex_unlock(&windows_mutex);
    return 0;
}

/* How many windows begin there. */
int stand_in_windows_at(const void *memory);
int stand_in_windows_at(const void *memory) {
    int count = 0;
    pthread_mutex_lock(&windows_mutex);
    for (int i = 0; i < MOST_WINDOWS; i++)
        count += windows[i].begin == memory;
    pthread_mutex_unlock(&windows_mutex);
    return count;
}
