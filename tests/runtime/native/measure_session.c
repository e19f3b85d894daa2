/* libtuccl-measure.so's sources over the stand-ins of CUDA and NCCL, one thread per rank.
 *
 *   measure_session NCCL
 *
 * Needs the stand-in libcuda.so.1 in LD_LIBRARY_PATH. */
#include "collective.h"
#include "harness.h"
#include "rounding.h"
#include "session.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, MORE_THAN_ARE_KEPT = 60 };

struct rank {
    const char *nccl;
    unsigned char *id;
    int rank;
};

static struct tuccl_measure_call make_call(int operation, int type, uint64_t size_bytes, int bits) {
    return (struct tuccl_measure_call){.size_bytes = size_bytes,
                                       .operation = operation,
                                       .data_type = type,
                                       .in_place = (bits & 1) && operation != TUCCL_ALLTOALL,
                                       .use_graph = bits >> 1,
                                       .calls = 3};
}

static void measure_and_check(struct tuccl_measure *measure, struct tuccl_measure_call call) {
    double times_us[2] = {0, 0};
    char finding[512] = "";
    CHECK(tuccl_measure_prepare_graphs(measure) == 0);
    CHECK(tuccl_measure_prepare_graphs(measure) == 0);
    CHECK(tuccl_measure_prepare(measure, &call) == 1);
    CHECK(tuccl_measure_prepare(measure, &call) == 0);
    CHECK(tuccl_measure_time(measure, &call, 2, times_us) == 0);
    CHECK(times_us[0] > 0 && times_us[1] > 0);
    CHECK(tuccl_measure_check(measure, &call, finding, sizeof finding) == 0);
}

/* Of two ranks every sum has one order; of four the stand-in's ring, for all but all_reduce, has
 * another for each chunk. */
static void check_order(struct tuccl_measure *measure, bool is_root) {
    static const int types[] = {TYPE_FLOAT16, TYPE_BFLOAT16, TYPE_FLOAT32, TYPE_FLOAT64};
    static const int operations[] = {TUCCL_ALL_REDUCE, TUCCL_REDUCE_SCATTER, TUCCL_REDUCE};
    for (int i = 0; i < 12; i++) {
        char finding[512] = "";
        /* An odd number of elements for each rank, and buffers one element later. */
        struct tuccl_measure_call call = make_call(operations[i % 3], types[i / 3], 99 * 4 * 8, i);
        call.use_graph = i & 1;
        bool is_ring = operations[i % 3] != TUCCL_ALL_REDUCE;
        int moved = tuccl_measure_check_order(measure, &call, RANKS, i & 1, finding, 512);
        CHECK(moved == (is_ring && (is_root || operations[i % 3] != TUCCL_REDUCE)));
        CHECK((moved == 1) == (strstr(finding, "instead of 0x") != NULL));
        call.communicator = 1;
        CHECK(tuccl_measure_check_order(measure, &call, 2, i & 1, finding, sizeof finding) == 0);
        CHECK(tuccl_measure_check_order(measure, &call, 1, i & 1, finding, sizeof finding) == 0);
    }
    char finding[512] = "";
    struct tuccl_measure_call none = make_call(TUCCL_ALL_REDUCE, TYPE_INT32, 96, 0);
    CHECK(tuccl_measure_check_order(measure, &none, 1, 0, finding, sizeof finding) < 0);
    none = make_call(TUCCL_ALL_GATHER, TYPE_FLOAT32, 96, 0);
    CHECK(tuccl_measure_check_order(measure, &none, 1, 0, finding, sizeof finding) < 0);
    CHECK(!tuccl_measure_is_broken(measure));
}

/* Both pairs make their calls at the same time, and each gets the data of its own ranks alone. */
static void split_and_check(struct tuccl_measure *measure, int rank) {
    int pairs = tuccl_measure_split(measure, rank / 2, 2, rank % 2);
    int single = tuccl_measure_split(measure, rank, 1, 0);
    CHECK(pairs == 1 && single == 2);
    for (int operation = 0; operation < TUCCL_OPERATIONS; operation++) {
        struct tuccl_measure_call call = make_call(operation, TYPE_FLOAT32, 96, operation % 4);
        call.communicator = pairs;
        measure_and_check(measure, call);
        call.communicator = single;
        measure_and_check(measure, call);
        call.communicator = 0;
        measure_and_check(measure, call);
    }
    struct tuccl_measure_call none = make_call(TUCCL_ALL_REDUCE, TYPE_FLOAT32, 96, 0);
    none.communicator = 3;
    CHECK(tuccl_measure_prepare(measure, &none) < 0 && !tuccl_measure_is_broken(measure));
    CHECK(strstr(tuccl_measure_failure(measure), "there is no communicator 3") != NULL);
}

static uint64_t (*blocks_computed)(void);

/* Blocks that one launch of a prepared call computes. */
static uint64_t blocks_of(struct tuccl_measure *measure, struct tuccl_measure_call call) {
    double time_us = 0;
    measure_and_check(measure, call);
    uint64_t before = blocks_computed();
    CHECK(tuccl_measure_time(measure, &call, 1, &time_us) == 0 && time_us > 0);
    return blocks_computed() - before;
}

/* A launch computes beside its calls what it is told to, in a graph as outside of one. */
static void measure_beside_computation(struct tuccl_measure *measure) {
    static const char ptx[] = ".visible .entry tuccl_compute(";
    struct tuccl_measure_call call = make_call(TUCCL_ALL_REDUCE, TYPE_FLOAT32, 192, 0);
    call.computation_us = 500;
    CHECK(tuccl_measure_prepare(measure, &call) < 0 && !tuccl_measure_is_broken(measure));
    CHECK(strstr(tuccl_measure_failure(measure), "was not prepared") != NULL);
    CHECK(tuccl_measure_prepare_computation(measure, ptx) == 0);
    CHECK(tuccl_measure_prepare_computation(measure, ptx) == 0);
    for (call.use_graph = 0; call.use_graph < 2; call.use_graph++) {
        call.computation_us = 500;
        uint64_t blocks = blocks_of(measure, call);
        call.computation_us = 1000;
        uint64_t twice = blocks_of(measure, call);
        call.computation_us = 0;
        CHECK(blocks_of(measure, call) == 0);
        CHECK(blocks > 0 && twice + 1 >= 2 * blocks && twice <= 2 * blocks + 1);
    }
}

/* Calls on registered buffers, on two communicators, before and after these buffers grow. */
static void measure_in_windows(struct tuccl_measure *measure, const char *nccl) {
    void *library = dlopen(nccl, RTLD_NOW | RTLD_LOCAL);
    int (*windows_of)(const void *memory);
    CHECK(library != NULL);
    *(void **)&windows_of = dlsym(library, "stand_in_windows_at");
    CHECK(windows_of != NULL);
    struct tuccl_measure_call call = make_call(TUCCL_ALL_GATHER, TYPE_FLOAT32, 192, 0);
    call.in_windows = 1;
    for (call.use_graph = 0; call.use_graph < 2; call.use_graph++)
        for (call.communicator = 0; call.communicator < 2; call.communicator++)
            measure_and_check(measure, call);
    const void *first = (const void *)(uintptr_t)measure->registered.send;
    CHECK(first != NULL && measure->registered.send != measure->buffers.send);
    CHECK(windows_of(first) == 2);
    call.use_graph = call.communicator = 0;
    call.size_bytes = 2 * measure->capacity_bytes;
    measure_and_check(measure, call);
    CHECK(windows_of((const void *)(uintptr_t)measure->registered.send) == 1);
}

static void *run_rank(void *argument) {
    const struct rank *rank = argument;
    struct tuccl_measure *measure = tuccl_measure_create();
    char name[64];
    CHECK(measure != NULL && tuccl_measure_load(measure, rank->nccl) == 22809);
    CHECK(tuccl_measure_take_gpu(measure, rank->rank, name, sizeof name) == 12080);
    CHECK(tuccl_measure_join(measure, RANKS, rank->rank, rank->id) == 0);
    for (int operation = 0; operation < TUCCL_OPERATIONS; operation++)
        for (int type = 0; type < DATA_TYPES; type++)
            measure_and_check(measure, make_call(operation, type, 384, (operation + type) % 4));
    for (int i = 1; i <= MORE_THAN_ARE_KEPT; i++)
        measure_and_check(measure, make_call(TUCCL_ALL_GATHER, TYPE_FLOAT32, 48u * (uint64_t)i, 2));
    struct tuccl_measure_call odd = make_call(TUCCL_ALL_GATHER, TYPE_FLOAT32, 100, 0);
    CHECK(tuccl_measure_prepare(measure, &odd) < 0 && !tuccl_measure_is_broken(measure));
    CHECK(strstr(tuccl_measure_failure(measure), "no whole number") != NULL);
    double time_us;
    CHECK(tuccl_measure_time(measure, &odd, 1, &time_us) < 0);
    split_and_check(measure, rank->rank);
    check_order(measure, rank->rank == 0);
    measure_beside_computation(measure);
    measure_in_windows(measure, rank->nccl);
    tuccl_measure_destroy(measure);
    return NULL;
}

/* Sums stay within what the type holds exactly, whatever the number of ranks. */
static void check_patterns(void) {
    static float of_rank[PATTERN_ELEMENTS], sum[PATTERN_ELEMENTS], added[PATTERN_ELEMENTS];
    for (int ranks = 1; ranks <= 4096; ranks *= 8) {
        memset(added, 0, sizeof added);
        for (int rank = 0; rank < ranks; rank++) {
            pattern_of_rank(TYPE_FLOAT32, ranks, rank, 1000, of_rank);
            for (int i = 0; i < 1000; i++)
                added[i] += of_rank[i];
        }
        pattern_of_sum(TYPE_FLOAT32, ranks, 1000, sum);
        float largest = 0;
        for (int i = 0; i < 1000; i++) {
            CHECK(sum[i] == added[i]);
            largest = fmaxf(largest, sum[i]);
        }
        CHECK(largest > 500 && largest <= 2048);
    }
}

/* The sums are those of the compiler's own 16-bit floats, and their order matters. */
static void check_rounding(void) {
    static _Float16 of_rank[4][PATTERN_ELEMENTS], sum[PATTERN_ELEMENTS], of_nodes[PATTERN_ELEMENTS];
    const size_t elements = 5000;
    for (int rank = 0; rank < 4; rank++)
        rounding_of_rank(TYPE_FLOAT16, rank, elements, of_rank[rank]);
    rounding_of_sum(TYPE_FLOAT16, 4, 4, elements, sum);
    rounding_of_sum(TYPE_FLOAT16, 4, 2, elements, of_nodes);
    int differ = 0;
    for (size_t i = 0; i < elements; i++) {
        float first = (float)of_rank[0][i] + (float)of_rank[1][i];
        float second = (float)of_rank[2][i] + (float)of_rank[3][i];
        CHECK(sum[i] == (_Float16)(first + (float)of_rank[2][i] + (float)of_rank[3][i]));
        CHECK(of_nodes[i] == (_Float16)((float)(_Float16)first + (float)(_Float16)second));
        differ += sum[i] != of_nodes[i];
    }
    CHECK(differ > 500);
    CHECK(of_rank[0][0] == of_rank[0][4093] && of_rank[0][1] != of_rank[0][4093]);
}

int main(int count_of_arguments, char **arguments) {
    CHECK(count_of_arguments == 2);
    unsigned char id[TUCCL_MEASURE_ID_BYTES];
    struct rank ranks[RANKS];
    pthread_t threads[RANKS];
    struct tuccl_measure *first = tuccl_measure_create();
    CHECK(tuccl_measure_unique_id(first, id) < 0); /* NCCL was not loaded. */
    CHECK(tuccl_measure_load(first, arguments[1]) > 0 && tuccl_measure_unique_id(first, id) == 0);
    CHECK(tuccl_measure_join(first, RANKS, 0, id) < 0);
    CHECK(tuccl_measure_split(first, 0, 1, 0) < 0);
    tuccl_measure_destroy(first);
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(cuda != NULL);
    *(void **)&blocks_computed = dlsym(cuda, "stand_in_blocks_computed");
    CHECK(blocks_computed != NULL);
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (struct rank){arguments[1], id, i};
        CHECK(pthread_create(&threads[i], NULL, run_rank, &ranks[i]) == 0);
    }
    for (int i = 0; i < RANKS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    check_patterns();
    check_rounding();
    printf("%d ranks measured and checked\n", RANKS);
    return 0;
}
