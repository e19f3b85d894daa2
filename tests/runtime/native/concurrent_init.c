/* Communicators started, used and ended from several threads at once.
 *
 *   concurrent_init GOOD_BUNDLE DAMAGED_BUNDLE
 *
 * Every thread must see what a single thread sees; a damaged bundle gives one warning in all. As
 * NCCL 2.30 does, a thread asks about the calls of a group, then about parts of each of them. */
#include "harness.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, ROUNDS = 40, CALLS = 200, GROUP = 4, PARTS = 3, ABI = 6 };

struct work {
    uint64_t seed;
    void *shared; /* A context that all threads use at once. */
    bool expect_table;
    struct call expected[CALLS];
    size_t expected_chunks[CALLS][PARTS];
};

static void make_calls(int abi, void *context, uint64_t seed, struct call *calls,
                       size_t (*chunks)[PARTS]) {
    for (int i = 0; i < CALLS; i++) {
        calls[i] = random_call(&seed);
        plugin_call(abi, context, &calls[i]);
        for (int of = i + 1 - GROUP; i % GROUP == GROUP - 1 && of <= i; of++)
            for (int part = 0; part < PARTS; part++)
                chunks[of][part] = plugin_chunk(abi, context, &calls[of], calls[of].bytes / PARTS,
                                                1 << (14 + part * 3));
    }
}

static void *run(void *argument) {
    const struct work *work = argument;
    for (int round = 0; round < ROUNDS; round++) {
        struct call calls[CALLS];
        size_t chunks[CALLS][PARTS];
        void *own = NULL;
        int abi = ABI + round % 2;
        CHECK(plugin_init(abi, 8, 1, &own) == 0);
        CHECK((own != NULL) == work->expect_table);
        make_calls(abi, own, work->seed, calls, chunks);
        CHECK(memcmp(calls, work->expected, sizeof calls) == 0);
        CHECK(memcmp(chunks, work->expected_chunks, sizeof chunks) == 0);
        /* NCCL allows no two threads in a communicator: its chunks are lawful, but anyone's. */
        make_calls(ABI, work->shared, work->seed, calls, chunks);
        CHECK(memcmp(calls, work->expected, sizeof calls) == 0);
        plugin_end(abi, own);
    }
    return NULL;
}

static int changed_calls(const struct work *work) {
    int changed = 0;
    uint64_t seed = work->seed;
    for (int i = 0; i < CALLS; i++) {
        struct call untouched = random_call(&seed);
        changed += memcmp(&untouched, &work->expected[i], sizeof untouched) != 0;
    }
    return changed;
}

static int changed_chunks;

static int run_threads(const char *path, bool expect_table) {
    static struct work work;
    pthread_t threads[THREADS];
    CHECK(setenv("TUCCL_BUNDLE", path, 1) == 0);
    work.seed = 42;
    work.expect_table = expect_table;
    if (expect_table)
        CHECK(plugin_init(ABI, 8, 1, &work.shared) == 0 && work.shared != NULL);
    make_calls(ABI, work.shared, work.seed, work.expected, work.expected_chunks);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, run, &work) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    plugin_end(ABI, work.shared);
    work.shared = NULL;
    for (int i = 0; i < CALLS; i++)
        for (int part = 0; part < PARTS; part++)
            changed_chunks += work.expected_chunks[i][part] != (size_t)1 << (14 + part * 3);
    return changed_calls(&work);
}

int main(int count_of_arguments, char **arguments) {
    CHECK(count_of_arguments == 3);
    int changed = run_threads(arguments[1], true);
    CHECK(changed > 0 && changed_chunks > 0 && warning_count() == 0);
    CHECK(run_threads(arguments[2], false) == 0);
    CHECK(warning_count() == 1);
    printf("%d threads x %d rounds agree; %d of %d calls changed\n", THREADS, ROUNDS, changed,
           CALLS);
    return 0;
}
