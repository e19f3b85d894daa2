/* NCCL's tuner plugin ABI, versions 2 to 7, as far as this plugin needs it.
 *
 * No NCCL package ships these declarations. They state binary facts: order and types of members as
 * NCCL 2.21 to 2.32 load them (src/plugin/tuner and include/plugin/tuner there). Enumerations of
 * NCCL are plain ints here, because their values differ between releases and RCCL.
 *
 *   v2 2.21+   v3 2.22+   v4 2.24+   v5 2.28+   v6 2.30+   v7 2.32.6+   (NCCL takes the newest that
 *   it knows) */
#ifndef TUCCL_TUNER_ABI_H
#define TUCCL_TUNER_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tuccl_nccl_result {
    NCCL_SUCCESS = 0,
    NCCL_INVALID_USAGE = 5,
};

enum tuccl_nccl_log_level {
    NCCL_LOG_WARN = 2,
    NCCL_LOG_INFO = 3,
};

enum tuccl_nccl_log_flag {
    NCCL_TUNING = 0x40,
};

/* Rows and columns of the cost table. */
enum tuccl_nccl_algorithm {
    NCCL_ALGO_TREE = 0,
    NCCL_ALGO_RING = 1,
    NCCL_ALGO_COLLNET_DIRECT = 2,
    NCCL_ALGO_COLLNET_CHAIN = 3,
    NCCL_ALGO_NVLS = 4,
    NCCL_ALGO_NVLS_TREE = 5,
    NCCL_ALGO_PAT = 6,
    NCCL_ALGORITHMS = 7,
};

enum tuccl_nccl_protocol {
    NCCL_PROTO_LL = 0,
    NCCL_PROTO_LL128 = 1,
    NCCL_PROTO_SIMPLE = 2,
    NCCL_PROTOCOLS = 3,
};

enum tuccl_nccl_function {
    NCCL_FUNC_BROADCAST = 0,
    NCCL_FUNC_REDUCE = 1,
    NCCL_FUNC_ALL_GATHER = 2,
    NCCL_FUNC_REDUCE_SCATTER = 3,
    NCCL_FUNC_ALL_REDUCE = 4,
};

typedef void (*tuccl_nccl_logger)(int level, unsigned long flags, const char *file, int line,
                                  const char *format, ...);

struct tuccl_tuner_v2 {
    const char *name;
    int (*init)(size_t ranks, size_t nodes, tuccl_nccl_logger logger, void **context);
    int (*get_coll_info)(void *context, int function, size_t bytes, int collnet_support,
                         int nvls_support, int pipelined_operations, int *algorithm, int *protocol,
                         int *nchannels);
    int (*destroy)(void *context);
};

/* `cost` is NCCL's contiguous float[algorithms][protocols] in microseconds, cast to float**; an
 * entry of -1 cannot run, the lowest of the others wins. */
struct tuccl_tuner_v3 {
    const char *name;
    int (*init)(size_t ranks, size_t nodes, tuccl_nccl_logger logger, void **context);
    int (*get_coll_info)(void *context, int function, size_t bytes, int pipelined_operations,
                         float **cost, int algorithms, int protocols, int *nchannels);
    int (*destroy)(void *context);
};

struct tuccl_tuner_v4 {
    const char *name;
    int (*init)(size_t ranks, size_t nodes, tuccl_nccl_logger logger, void **context);
    int (*get_coll_info)(void *context, int function, size_t bytes, int pipelined_operations,
                         float **cost, int algorithms, int protocols, int registered_buffers,
                         int *nchannels);
    int (*destroy)(void *context);
};

/* NCCL calls it an NVLink domain and fills it by node. */
struct tuccl_nvl_domains_v5 {
    int domains;
    int min_ranks_per_domain;
    int max_ranks_per_domain;
};

struct tuccl_tuner_v5 {
    const char *name;
    int (*init)(void **context, uint64_t communicator, size_t ranks, size_t nodes,
                tuccl_nccl_logger logger, const struct tuccl_nvl_domains_v5 *domains,
                void *constants);
    int (*get_coll_info)(void *context, int function, size_t bytes, int pipelined_operations,
                         float **cost, int algorithms, int protocols, int registered_buffers,
                         int *nchannels);
    int (*finalize)(void *context);
};

/* v7 is v6 with `constants` for one more generation of GPUs. */
struct tuccl_tuner_v6 {
    const char *name;
    int (*init)(void **context, uint64_t communicator, size_t ranks, size_t nodes,
                tuccl_nccl_logger logger, const struct tuccl_nvl_domains_v5 *domains,
                void *constants);
    int (*get_coll_info)(void *context, int function, size_t bytes, int pipelined_operations,
                         float **cost, int algorithms, int protocols, int registered_buffers,
                         int *nchannels);
    int (*finalize)(void *context);
    int (*get_chunk_size)(void *context, int function, size_t bytes, int algorithm, int protocol,
                          int nchannels, size_t *chunk_bytes);
};

/* What a tuner may choose. */

/* A built-in configuration, by NCCL's cost table indices. */
struct tuccl_choice {
    uint64_t min_bytes;
    uint64_t max_bytes;
    uint8_t algorithm;
    uint8_t protocol;
    uint8_t nchannels;  /* 0: NCCL's own count. */
    uint8_t chunk_log2; /* The chunks' bytes are this power of two; 0: NCCL's own. */
    float builtin_time_us;
    float default_time_us;
};

enum {
    TUCCL_NO_REQUEST = 0xFF,
    TUCCL_ABI_WITH_CHUNKS = 6, /* The first that asks about chunks. */
    TUCCL_MOST_NCHANNELS = 64, /* No algorithm has more channels. */
    /* Above the grain of every protocol; NCCL's buffers hold no chunk of more by default. */
    TUCCL_LEAST_CHUNK_LOG2 = 12,
    TUCCL_MOST_CHUNK_LOG2 = 24,
};

/* Returns whether a choice may have chunks of this size. Others than ring, tree and PAT have bounds
 * of their own, which NCCL keeps for its own size alone (NCCL 2.30 src/enqueue.cc). */
static inline bool tuccl_chunk_is_sound(uint8_t algorithm, uint8_t chunk_log2) {
    return chunk_log2 == 0 ||
           (chunk_log2 >= TUCCL_LEAST_CHUNK_LOG2 && chunk_log2 <= TUCCL_MOST_CHUNK_LOG2 &&
            (algorithm == NCCL_ALGO_RING || algorithm == NCCL_ALGO_TREE ||
             algorithm == NCCL_ALGO_PAT));
}

/* Reads a request as the executor and measuring processes write it, in one word: bits 0 to 7
 * algorithm (TUCCL_NO_REQUEST: NCCL's own choice), 8 to 15 protocol, 16 to 23 channels (0: NCCL's
 * count), 24 to 31 the logarithm of the chunks' bytes to base 2 (0: NCCL's). False without one. */
static inline bool tuccl_requested_choice(uint64_t word, struct tuccl_choice *choice) {
    choice->min_bytes = 0;
    choice->max_bytes = UINT64_MAX;
    choice->algorithm = (uint8_t)(word & 0xFF);
    choice->protocol = (uint8_t)(word >> 8 & 0xFF);
    choice->nchannels = (uint8_t)(word >> 16 & 0xFF);
    choice->chunk_log2 = (uint8_t)(word >> 24 & 0xFF);
    choice->builtin_time_us = 0.0f;
    choice->default_time_us = 0.0f;
    return choice->algorithm != TUCCL_NO_REQUEST;
}

/* Returns whether NCCL takes a tuner's channel count for this algorithm without a bound (NCCL 2.30
 * src/enqueue.cc), even above the communicator's channels. */
static inline bool tuccl_channels_are_unbounded(uint8_t algorithm, size_t nodes) {
    return algorithm == NCCL_ALGO_COLLNET_DIRECT || algorithm == NCCL_ALGO_COLLNET_CHAIN ||
           (algorithm == NCCL_ALGO_NVLS && nodes > 1);
}

#endif
