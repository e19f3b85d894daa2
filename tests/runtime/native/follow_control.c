/* The control block through every ABI, and from several threads at once.
 *
 *   follow_control GOOD_BUNDLE BLOCK */
#include "control_layout.h"
#include "harness.h"
#include "tuner_abi.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { THREADS = 8, CALLS = 2000, BLOCK_FILE_BYTES = 4096 };

static struct tuccl_control_block *make_block(const char *path) {
    int file = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    CHECK(file >= 0 && ftruncate(file, BLOCK_FILE_BYTES) == 0);
    struct tuccl_control_block *block =
        mmap(NULL, BLOCK_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(block != MAP_FAILED);
    close(file);
    memcpy(block->magic, TUCCL_CONTROL_MAGIC, sizeof block->magic);
    block->version = TUCCL_CONTROL_VERSION;
    block->block_bytes = sizeof *block;
    atomic_store(&block->override, TUCCL_NO_REQUEST);
    return block;
}

static void request(struct tuccl_control_block *block, int algorithm, int protocol, int nchannels,
                    int chunk_log2) {
    atomic_store(&block->override, (uint64_t)algorithm | (uint64_t)protocol << 8 |
                                       (uint64_t)nchannels << 16 | (uint64_t)chunk_log2 << 24);
}

static bool are_equal(const struct call *a, const struct call *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

/* A part is cut as requested if that is smaller than NCCL's own, and counted if it makes a
 * difference. */
static void check_chunks(int abi, void *context, struct tuccl_control_block *block,
                         const struct call *call, int protocol, int chunk_log2) {
    static const size_t grains[] = {16, 1920, 512};
    const size_t own = 1 << 20, part_bytes = 64 << 20;
    uint64_t asked = atomic_load(&block->chunks_asked);
    uint64_t changed = atomic_load(&block->chunks_changed);
    size_t wanted = 0, chunk = plugin_chunk(abi, context, call, part_bytes, own);
    bool known = call->function >= 0 && call->function <= NCCL_FUNC_ALL_REDUCE;
    if (known && chunk_log2 > 0)
        wanted = ((size_t)1 << chunk_log2) / grains[protocol] * grains[protocol];
    CHECK(chunk == (wanted > 0 && wanted < own ? wanted : own));
    CHECK(atomic_load(&block->chunks_asked) == asked + known);
    CHECK(atomic_load(&block->chunks_changed) == changed + (chunk < own));
}

/* An available entry is forced to 0 with its channels, an unavailable one stays; both are counted.
 */
static void check_overrides(int abi, void *context, struct tuccl_control_block *block,
                            uint64_t *seed) {
    for (int i = 0; i < CALLS; i++) {
        int algorithm = (int)random_below(seed, ALGORITHM_ROWS + 1);
        int protocol = (int)random_below(seed, PROTOCOL_COLUMNS + 1);
        int nchannels = (int)random_below(seed, 80);
        int chunk_log2 = random_below(seed, 2) == 0 ? 0 : (int)random_below(seed, 40);
        struct call before = random_call(seed), after = before;
        uint64_t forced = atomic_load(&block->forced), refused = atomic_load(&block->refused);
        request(block, algorithm, protocol, nchannels, chunk_log2);
        plugin_call(abi, context, &after);
        bool was_forced = atomic_load(&block->forced) == forced + 1;
        CHECK(atomic_load(&block->forced) + atomic_load(&block->refused) == forced + refused + 1);
        CHECK(is_lawful(abi, &before, &after));
        bool has_chunks = algorithm == NCCL_ALGO_RING || algorithm == NCCL_ALGO_TREE ||
                          algorithm == NCCL_ALGO_PAT;
        bool can_be = algorithm < ALGORITHM_ROWS && protocol < PROTOCOL_COLUMNS && nchannels <= 64;
        can_be =
            can_be && (chunk_log2 == 0 || (has_chunks && chunk_log2 >= 12 && chunk_log2 <= 24));
        if (abi == 2)
            can_be = can_be && protocol != NCCL_PROTO_LL128 &&
                     (algorithm == NCCL_ALGO_RING ||
                      (algorithm == NCCL_ALGO_TREE && before.function == NCCL_FUNC_ALL_REDUCE));
        else
            can_be = can_be && before.cost[algorithm * PROTOCOL_COLUMNS + protocol] >= 0.0f;
        CHECK(was_forced == can_be);
        CHECK(was_forced || are_equal(&before, &after));
        bool bounded =
            algorithm != NCCL_ALGO_COLLNET_DIRECT && algorithm != NCCL_ALGO_COLLNET_CHAIN;
        if (was_forced && bounded)
            CHECK(after.nchannels == (nchannels > 0 ? nchannels : before.nchannels));
        if (abi >= ABI_WITH_CHUNKS)
            check_chunks(abi, context, block, &after, protocol, was_forced ? chunk_log2 : 0);
        CHECK(atomic_load(&block->function) == before.function);
        CHECK(atomic_load(&block->bytes) == before.bytes);
        if (abi > 2)
            CHECK(atomic_load(&block->algorithms) == ALGORITHM_ROWS);
        for (int j = 0; abi > 2 && j < ALGORITHM_ROWS * PROTOCOL_COLUMNS; j++)
            CHECK(atomic_load(&block->cost[j]) == before.cost[j]);
    }
}

static void check_abi(int abi, const char *path) {
    struct tuccl_control_block *block = make_block(path);
    uint64_t seed = (uint64_t)abi;
    void *context = NULL;
    CHECK(plugin_init(abi, 8, 1, &context) == 0 && context != NULL);
    CHECK(atomic_load(&block->loaded_abi) == (uint32_t)abi);
    CHECK(atomic_load(&block->loaded_pid) == (uint32_t)getpid());
    for (int i = 0; i < CALLS; i++) {
        struct call before = random_call(&seed), after = before;
        plugin_call(abi, context, &after);
        CHECK(are_equal(&before, &after)); /* No override, and no bundle either. */
    }
    CHECK(atomic_load(&block->asked) == CALLS && atomic_load(&block->forced) == 0);
    check_overrides(abi, context, block, &seed);
    CHECK(atomic_load(&block->asked) == 2 * CALLS && atomic_load(&block->forced) > 0);
    plugin_end(abi, context);
    munmap(block, BLOCK_FILE_BYTES);
}

static void *call_often(void *context) {
    uint64_t seed = 3;
    for (int i = 0; i < CALLS; i++) {
        struct call call = random_call(&seed);
        plugin_call(5, context, &call);
    }
    return NULL;
}

static void check_threads(const char *path) {
    struct tuccl_control_block *block = make_block(path);
    pthread_t threads[THREADS];
    void *context = NULL;
    CHECK(plugin_init(5, 8, 1, &context) == 0 && context != NULL);
    request(block, NCCL_ALGO_RING, NCCL_PROTO_LL, 4, 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, call_often, context) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(atomic_load(&block->asked) == (uint64_t)THREADS * CALLS);
    CHECK(atomic_load(&block->forced) + atomic_load(&block->refused) == (uint64_t)THREADS * CALLS);
    CHECK(atomic_load(&block->sequence) % 2 == 0);
    plugin_end(5, context);
    munmap(block, BLOCK_FILE_BYTES);
}

/* A malformed block keeps the communicator from starting, and no read passes the file's end. */
static void check_bad_blocks(const char *path) {
    struct tuccl_control_block *block = make_block(path);
    void *context = NULL;
    int warnings = warning_count();
    block->version++;
    CHECK(plugin_init(5, 8, 1, &context) == NCCL_INVALID_USAGE && context == NULL);
    block->version--;
    block->block_bytes--;
    CHECK(plugin_init(5, 8, 1, &context) == NCCL_INVALID_USAGE && context == NULL);
    block->block_bytes++;
    block->magic[0] = 'X';
    CHECK(plugin_init(5, 8, 1, &context) == NCCL_INVALID_USAGE && context == NULL);
    CHECK(atomic_load(&block->communicators) == 0);
    munmap(block, BLOCK_FILE_BYTES);
    CHECK(truncate(path, 100) == 0);
    CHECK(plugin_init(5, 8, 1, &context) == NCCL_INVALID_USAGE && context == NULL);
    CHECK(unlink(path) == 0);
    CHECK(plugin_init(5, 8, 1, &context) == NCCL_INVALID_USAGE && context == NULL);
    CHECK(warning_count() == warnings + 5);
}

/* Without TUCCL_CONTROL an existing block has no effect. */
static void check_not_in_jobs(const char *path) {
    struct tuccl_control_block *block = make_block(path);
    void *context = NULL;
    request(block, NCCL_ALGO_RING, NCCL_PROTO_LL, 4, 0);
    CHECK(unsetenv("TUCCL_CONTROL") == 0);
    CHECK(plugin_init(5, 3, 1, &context) == 0 &&
          context == NULL); /* The bundle lacks this shape. */
    CHECK(plugin_init(5, 8, 1, &context) == 0 && context != NULL);
    plugin_end(5, context);
    CHECK(atomic_load(&block->communicators) == 0 && atomic_load(&block->asked) == 0);
    munmap(block, BLOCK_FILE_BYTES);
}

int main(int count_of_arguments, char **arguments) {
    CHECK(count_of_arguments == 3);
    CHECK(setenv("TUCCL_BUNDLE", arguments[1], 1) == 0);
    CHECK(setenv("TUCCL_CONTROL", arguments[2], 1) == 0);
    for (int abi = OLDEST_ABI; abi <= NEWEST_ABI; abi++)
        check_abi(abi, arguments[2]);
    check_threads(arguments[2]);
    check_bad_blocks(arguments[2]);
    check_not_in_jobs(arguments[2]);
    printf("control block holds through ABI %d to %d\n", OLDEST_ABI, NEWEST_ABI);
    return 0;
}
