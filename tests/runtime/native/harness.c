#include "harness.h"
#include "tuner_abi.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

extern const struct tuccl_tuner_v2 ncclTunerPlugin_v2;
extern const struct tuccl_tuner_v3 ncclTunerPlugin_v3;
extern const struct tuccl_tuner_v4 ncclTunerPlugin_v4;
extern const struct tuccl_tuner_v5 ncclTunerPlugin_v5;
extern const struct tuccl_tuner_v6 ncclTunerPlugin_v6;
extern const struct tuccl_tuner_v6 ncclTunerPlugin_v7;

enum { MOST_CPU_S = 5, MOST_KIB = 64 << 10 };

static atomic_int warnings;

unsigned char *read_whole(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    CHECK(fseek(file, 0, SEEK_END) == 0);
    long size = ftell(file);
    CHECK(size > 0);
    rewind(file);
    unsigned char *data = malloc((size_t)size);
    CHECK(data != NULL);
    CHECK(fread(data, 1, (size_t)size, file) == (size_t)size);
    fclose(file);
    *bytes = (size_t)size;
    return data;
}

struct cost cost_so_far(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    double user = (double)usage.ru_utime.tv_sec + 1e-6 * (double)usage.ru_utime.tv_usec;
    double kernel = (double)usage.ru_stime.tv_sec + 1e-6 * (double)usage.ru_stime.tv_usec;
    return (struct cost){user + kernel, usage.ru_maxrss};
}

void check_cost(struct cost before) {
    struct cost after = cost_so_far();
    CHECK(after.cpu_s - before.cpu_s < MOST_CPU_S);
    CHECK(after.most_kib - before.most_kib < MOST_KIB);
}

int warning_count(void) {
    return atomic_load(&warnings);
}

void test_logger(int level, unsigned long flags, const char *file, int line, const char *format,
                 ...) {
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    /* Formatting makes the sanitizers look at every argument. */
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    CHECK(length > 0 && flags == NCCL_TUNING && file != NULL && line > 0);
    CHECK(level == NCCL_LOG_WARN || level == NCCL_LOG_INFO);
    if (level == NCCL_LOG_WARN)
        atomic_fetch_add(&warnings, 1);
}

int plugin_init(int abi, size_t ranks, size_t nodes, void **context) {
    const struct tuccl_nvl_domains_v5 domains = {(int)nodes, (int)(ranks / nodes),
                                                 (int)(ranks / nodes)};
    switch (abi) {
    case 2:
        return ncclTunerPlugin_v2.init(ranks, nodes, test_logger, context);
    case 3:
        return ncclTunerPlugin_v3.init(ranks, nodes, test_logger, context);
    case 4:
        return ncclTunerPlugin_v4.init(ranks, nodes, test_logger, context);
    case 5:
        return ncclTunerPlugin_v5.init(context, 7, ranks, nodes, test_logger, &domains, NULL);
    case 6:
        return ncclTunerPlugin_v6.init(context, 7, ranks, nodes, test_logger, &domains, NULL);
    default:
        return ncclTunerPlugin_v7.init(context, 7, ranks, nodes, test_logger, &domains, NULL);
    }
}

void plugin_call(int abi, void *context, struct call *c) {
    float **cost = (float **)(void *)c->cost;
    const int rows = ALGORITHM_ROWS, columns = PROTOCOL_COLUMNS;
    int result;
    if (abi == 2)
        result = ncclTunerPlugin_v2.get_coll_info(context, c->function, c->bytes, 1, 1, 1,
                                                  &c->algorithm, &c->protocol, &c->nchannels);
    else if (abi == 3)
        result = ncclTunerPlugin_v3.get_coll_info(context, c->function, c->bytes, 1, cost, rows,
                                                  columns, &c->nchannels);
    else
        result = (abi == 4   ? ncclTunerPlugin_v4.get_coll_info
                  : abi == 5 ? ncclTunerPlugin_v5.get_coll_info
                  : abi == 6 ? ncclTunerPlugin_v6.get_coll_info
                             : ncclTunerPlugin_v7.get_coll_info)(
            context, c->function, c->bytes, 1, cost, rows, columns, 0, &c->nchannels);
    CHECK(result == NCCL_SUCCESS);
}

/* The pair that a tuner wrote 0 for, else ring with Simple. */
static int chosen_pair(const struct call *call) {
    for (int i = 0; i < ALGORITHM_ROWS * PROTOCOL_COLUMNS; i++)
        if (call->cost[i] == 0.0f)
            return i;
    return NCCL_ALGO_RING * PROTOCOL_COLUMNS + NCCL_PROTO_SIMPLE;
}

size_t plugin_chunk(int abi, void *context, const struct call *call, size_t part_bytes,
                    size_t own) {
    static const size_t grains[] = {16, 1920, 512};
    int pair = chosen_pair(call), protocol = pair % PROTOCOL_COLUMNS;
    size_t chunk = own, grain = grains[protocol];
    int result = (abi == 6 ? ncclTunerPlugin_v6 : ncclTunerPlugin_v7)
                     .get_chunk_size(context, call->function, part_bytes, pair / PROTOCOL_COLUMNS,
                                     protocol, 1, &chunk);
    CHECK(result == NCCL_SUCCESS);
    CHECK(chunk == own || (chunk < own && chunk >= grain && chunk % grain == 0));
    return chunk;
}

void plugin_end(int abi, void *context) {
    int result =
        abi <= 4 ? ncclTunerPlugin_v4.destroy(context) : ncclTunerPlugin_v5.finalize(context);
    CHECK(result == NCCL_SUCCESS);
}

struct call random_call(uint64_t *state) {
    struct call call;
    memset(&call, 0, sizeof call);
    call.function = (int)random_below(state, 20) - 3;
    call.bytes = (size_t)(random_number(state) >> random_below(state, 64));
    call.algorithm = call.protocol = -1;
    for (int i = 0; i < ALGORITHM_ROWS * PROTOCOL_COLUMNS; i++)
        call.cost[i] = random_below(state, 3) == 0 ? -1.0f : 1.0f + (float)random_below(state, 99);
    return call;
}

bool is_lawful(int abi, const struct call *before, const struct call *after) {
    int forced = 0;
    for (int i = 0; i < ALGORITHM_ROWS * PROTOCOL_COLUMNS; i++) {
        if (before->cost[i] == after->cost[i])
            continue;
        if (before->cost[i] < 0.0f || after->cost[i] != 0.0f)
            return false;
        forced++;
    }
    if (abi == 2) {
        forced += after->algorithm != before->algorithm;
        if (after->algorithm < -1 || after->algorithm >= ALGORITHM_ROWS || after->protocol < -1 ||
            after->protocol >= PROTOCOL_COLUMNS)
            return false;
    } else if (after->algorithm != before->algorithm || after->protocol != before->protocol) {
        return false;
    }
    if (after->nchannels != before->nchannels &&
        (forced == 0 || after->nchannels < 1 || after->nchannels > 64))
        return false;
    return forced <= 1 && after->function == before->function && after->bytes == before->bytes;
}
