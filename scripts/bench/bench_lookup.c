/* What a lookup costs: median over batches, for the plugin's own get_coll_info (ABI v5).
 *
 *   bench_lookup BUNDLE RANKS NODES
 *
 * Two patterns: one size again and again, as a training loop calls, and sizes spread at random over
 * the whole table, where every search takes another path. The cost of the loop and of restoring the
 * cost table is measured as well and not subtracted. */
#include "tuner_abi.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES = 2001, CALLS = 1000, SIZES = 4096 };

extern const struct tuccl_tuner_v5 ncclTunerPlugin_v5;

static double batch_ns[BATCHES];
static size_t sizes[SIZES];
static int functions[SIZES];

static uint64_t random_number(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int compare(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static long measure(const char *label, void *context, int distinct_sizes) {
    float cost[7 * 3];
    long found = 0;
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = now_ns();
        for (int i = 0; i < CALLS; i++) {
            int pick = (batch * CALLS + i) % distinct_sizes;
            int nchannels = 0;
            memset(cost, 0x3f, sizeof cost);
            ncclTunerPlugin_v5.get_coll_info(context, functions[pick], sizes[pick], 1,
                                             (float **)(void *)cost, 7, 3, 0, &nchannels);
            found += nchannels != 0;
        }
        batch_ns[batch] = (now_ns() - start) / CALLS;
    }
    qsort(batch_ns, BATCHES, sizeof *batch_ns, compare);
    printf("%-28s median %6.1f ns  quartiles %6.1f to %6.1f ns  99th percentile %6.1f ns\n", label,
           batch_ns[BATCHES / 2], batch_ns[BATCHES / 4], batch_ns[3 * BATCHES / 4],
           batch_ns[BATCHES * 99 / 100]);
    return found;
}

int main(int count_of_arguments, char **arguments) {
    if (count_of_arguments != 4 || setenv("TUCCL_BUNDLE", arguments[1], 1) != 0) {
        fprintf(stderr, "usage: bench_lookup BUNDLE RANKS NODES\n");
        return 2;
    }
    size_t ranks = strtoul(arguments[2], NULL, 10), nodes = strtoul(arguments[3], NULL, 10);
    void *context = NULL;
    if (ncclTunerPlugin_v5.init(&context, 0, ranks, nodes, NULL, NULL, NULL) != 0 ||
        context == NULL) {
        fprintf(stderr, "bench_lookup: %s has no entries for this shape\n", arguments[1]);
        return 1;
    }
    uint64_t state = 1;
    for (int i = 0; i < SIZES; i++) {
        functions[i] = (int)(random_number(&state) % 5);
        sizes[i] = (size_t)(random_number(&state) % ((uint64_t)1 << 31));
    }
    long found = measure("one size again and again", context, 1);
    found += measure("4096 random sizes", context, SIZES);
    printf("%.1f %% of the lookups found an entry\n",
           100.0 * (double)found / (2.0 * BATCHES * CALLS));
    ncclTunerPlugin_v5.finalize(context);
    return 0;
}
