/* What the native tests of the tuner plugin share: files, costs, and calls of any ABI. */
#ifndef TUCCL_TEST_HARNESS_H
#define TUCCL_TEST_HARNESS_H

#include "check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    OLDEST_ABI = 2,
    NEWEST_ABI = 7,
    ABI_WITH_CHUNKS = 6,
    ALGORITHM_ROWS = 7,
    PROTOCOL_COLUMNS = 3
};

/* One call of get_coll_info: what NCCL hands in and what comes back. */
struct call {
    int function;
    size_t bytes;
    float cost[ALGORITHM_ROWS * PROTOCOL_COLUMNS];
    int algorithm, protocol; /* v2 */
    int nchannels;
};

/* The file at `path` in allocated memory. */
unsigned char *read_whole(const char *path, size_t *bytes);

/* What the process has cost so far, and a check of what one input did since then: a bound far above
 * what any takes, sanitizers included, and far below what would hold a job up. */
struct cost {
    double cpu_s;
    long most_kib; /* Of memory at once. */
};
struct cost cost_so_far(void);
void check_cost(struct cost before);

/* Warnings that test_logger received so far, from all threads. */
int warning_count(void);
void test_logger(int level, unsigned long flags, const char *file, int line, const char *format,
                 ...) __attribute__((format(printf, 5, 6)));

int plugin_init(int abi, size_t ranks, size_t nodes, void **context);
void plugin_call(int abi, void *context, struct call *call);
void plugin_end(int abi, void *context);

/* The size of chunks that a plugin of ABI v6 or later makes of NCCL's own for a part of a call; a
 * smaller one is whole grains of the protocol, any other is NCCL's. */
size_t plugin_chunk(int abi, void *context, const struct call *call, size_t part_bytes, size_t own);

/* A call with a cost table as NCCL makes it: positive times, and -1 where something cannot run. */
struct call random_call(uint64_t *state);

/* Whether a tuner was allowed to turn `before` into `after`: at most one entry that can run became
 * 0, nothing else moved, and the channel count only along with it. */
bool is_lawful(int abi, const struct call *before, const struct call *after);

#endif
