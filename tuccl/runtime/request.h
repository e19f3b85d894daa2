/* How the executor has NCCL run calls: a request that the tuner plugin of a communicator obeys, of
 * a rail, or of one of the job's that the executor checks at its start, guards or learns on. Both
 * are libraries of one process; the plugin looks the executor's function up when a communicator
 * starts.
 */
#ifndef TUCCL_REQUEST_H
#define TUCCL_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUCCL_REQUEST_FUNCTION "tuccl_executor_request"
#define TUCCL_CALLED_FUNCTION "tuccl_executor_is_called"
#define TUCCL_ANSWERED_FUNCTION "tuccl_executor_answered"

enum {
    TUCCL_REQUEST_NCCL = 0xFF,  /* NCCL's own choice. */
    TUCCL_REQUEST_TABLE = 0xFE, /* The table's, of the job's communicators alone. */
    TUCCL_REQUEST_ENTRY = 0xFD, /* Likewise, for what is left out, too. */
};

/* A range of sizes of an operation, both inclusive, and what its calls run by; lists end with an
 * operation that is none. */
enum { TUCCL_NO_OPERATION = 0xFF };
struct tuccl_left_out {
    uint64_t min_bytes;
    uint64_t max_bytes;
    uint32_t operation;
    uint32_t word; /* As below; mostly NCCL's own choice. */
};

/* Accessed with __atomic built-ins. */
struct tuccl_request {
    /* Bits 0 to 7 algorithm or one of the above, the others as in tuner_abi.h. */
    uint64_t word;
    uint32_t nodes;  /* Of a rail, which has a rank of each; 0: one of the job's communicators. */
    uint32_t takers; /* Communicators whose plugin obeys it. */
    /* Calls of the job's communicator that do not run as the table says; NULL: none. */
    const struct tuccl_left_out *left_out;
    uint32_t learns;  /* Whether it is obeyed where the table has no entry for the communicator. */
    uint32_t refused; /* Calls of the job's communicator that NCCL does not run as requested. */
};

/* The executor's function: the request of the communicator that it starts now, NULL without one. */
typedef struct tuccl_request *tuccl_request_function(void);
/* The executor's function: whether this process has called NCCL through it for a communicator. */
typedef bool tuccl_called_function(void);
/* The executor's function, by which it counts: the plugin has answered NCCL from the table, or with
 * what the job tries or has learned; in the job's thread as a rule. */
enum { TUCCL_ANSWERED_LEARNED = 0x100 }; /* Beside the operation. */
typedef void tuccl_answered_function(uint32_t operation);

/* What a call of the job's communicator runs by, as the word of a request. */
static inline uint32_t tuccl_word_of_call(const struct tuccl_request *request, uint32_t operation,
                                          uint64_t bytes) {
    const uint32_t word = (uint32_t)__atomic_load_n(&request->word, __ATOMIC_RELAXED);
    if ((word & 0xFF) != TUCCL_REQUEST_TABLE)
        return word;
    const struct tuccl_left_out *ranges = __atomic_load_n(&request->left_out, __ATOMIC_ACQUIRE);
    for (; ranges != NULL && ranges->operation != TUCCL_NO_OPERATION; ranges++)
        if (ranges->operation == operation && bytes >= ranges->min_bytes &&
            bytes <= ranges->max_bytes)
            return ranges->word;
    return TUCCL_REQUEST_TABLE;
}

#ifdef __cplusplus
}
#endif

#endif
