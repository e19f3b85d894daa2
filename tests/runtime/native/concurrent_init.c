/* Communicators started, used and ended from several threads at once.
 *
 *   concurrent_init GOOD_BUNDLE DAMAGED_BUNDLE
 *
 * Every thread must see what a single thread sees; a damaged bundle gives one warning in all. */
#include "harness.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, ROUNDS = 40, CALLS = 200 };

struct work {
    uint64_t seed;
    void *shared; /* A context that all threads use at once. */
    bool expect_table;
    struct call expected[CALLS];
};

static void make_calls(int abi, void *context, uint64_t seed, struct call *calls) {
    for (int i = 0; i < CALLS; i++) {
        calls[i] = random_call(&seed);
        plugin_call(abi, context, &calls[i]);
    }
}

static void *run(void *argument) {
    const struct work *work = argument;
    for (int round = 0; round < ROUNDS; round++) {
        struct call calls[CALLS];
        void *own = NULL;
        CHECK(plugin_init(5, 8, 1, &own) == 0);
        CHECK((own != NULL) == work->expect_table);
        make_calls(5, own, work->seed, calls);
        CHECK(memcmp(calls, work->expected, sizeof calls) == 0);
        make_calls(5, work->shared, work->seed, calls);
        CHECK(memcmp(calls, work->expected, sizeof calls) == 0);
        plugin_end(5, own);
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

static int run_threads(const char *path, bool expect_table) {
    static struct work work;
    pthread_t threads[THREADS];
    CHECK(setenv("TUCCL_BUNDLE", path, 1) == 0);
    work.seed = 42;
    work.expect_table = expect_table;
    if (expect_table)
        CHECK(plugin_init(5, 8, 1, &work.shared) == 0 && work.shared != NULL);
    make_calls(5, work.shared, work.seed, work.expected);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, run, &work) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    plugin_end(5, work.shared);
    work.shared = NULL;
    return changed_calls(&work);
}

int main(int count_of_arguments, char **arguments) {
    CHECK(count_of_arguments == 3);
    int changed = run_threads(arguments[1], true);
    CHECK(changed > 0 && warning_count() == 0);
    CHECK(run_threads(arguments[2], false) == 0);
    CHECK(warning_count() == 1);
    printf("%d threads x %d rounds agree; %d of %d calls changed\n", THREADS, ROUNDS, changed,
           CALLS);
    return 0;
}
