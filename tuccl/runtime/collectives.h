/* NCCL's calls that move data, with all that differs from one collective to another. The one list
 * in C; lookup_tables/collective.py has the same facts, and tests compare both.
 *
 * A rank gives the same to all receivers, or its buffer has a part for each (SPLITS). A rank that
 * gets joins a part from each sender (JOINS), or adds up what they gave (REDUCES). */
#ifndef TUCCL_COLLECTIVES_H
#define TUCCL_COLLECTIVES_H

#include <stdbool.h>
#include <stdint.h>

enum tuccl_flow {
    TUCCL_FROM_ROOT = 1, /* The root alone has an input. */
    TUCCL_TO_ROOT = 2,   /* The root alone has an output. */
    TUCCL_SPLITS = 4,
    TUCCL_JOINS = 8,
    TUCCL_REDUCES = 16,
};

/* Name, NCCL's name, nccl-tests' name, flow. The first five are ncclFunc_t. */
#define TUCCL_COLLECTIVES(X)                                                                       \
    X(BROADCAST, Broadcast, "broadcast", TUCCL_FROM_ROOT)                                          \
    X(REDUCE, Reduce, "reduce", TUCCL_TO_ROOT | TUCCL_REDUCES)                                     \
    X(ALL_GATHER, AllGather, "all_gather", TUCCL_JOINS)                                            \
    X(REDUCE_SCATTER, ReduceScatter, "reduce_scatter", TUCCL_SPLITS | TUCCL_REDUCES)               \
    X(ALL_REDUCE, AllReduce, "all_reduce", TUCCL_REDUCES)                                          \
    X(ALLTOALL, AlltoAll, "alltoall", TUCCL_SPLITS | TUCCL_JOINS)

/* Calls that tables do not have. */
#define TUCCL_OTHER_CALLS(X)                                                                       \
    X(GATHER, Gather, "gather", TUCCL_TO_ROOT | TUCCL_JOINS)                                       \
    X(SCATTER, Scatter, "scatter", TUCCL_FROM_ROOT | TUCCL_SPLITS)                                 \
    X(SEND, Send, "send", 0)                                                                       \
    X(RECV, Recv, "recv", 0)

#define TUCCL_CALLS(X) TUCCL_COLLECTIVES(X) TUCCL_OTHER_CALLS(X)

/* Codes in bundles, programs and recordings. */
enum tuccl_operation {
#define X(NAME, nccl_name, name, flow) TUCCL_##NAME,
    TUCCL_CALLS(X)
#undef X
        TUCCL_CALL_KINDS,
};

enum {
#define X(NAME, nccl_name, name, flow) +1
    TUCCL_OPERATIONS = 0 TUCCL_COLLECTIVES(X),
#undef X
    TUCCL_ASKED_ABOUT = TUCCL_ALL_REDUCE + 1,
};

static inline uint32_t tuccl_flow(uint32_t operation) {
    switch (operation) {
#define X(NAME, nccl_name, name, flow)                                                             \
    case TUCCL_##NAME:                                                                             \
        return flow;
        TUCCL_CALLS(X)
#undef X
    default:
        return 0;
    }
}

/* The name of nccl-tests. */
static inline const char *tuccl_call_name(uint32_t operation) {
    switch (operation) {
#define X(NAME, nccl_name, name, flow)                                                             \
    case TUCCL_##NAME:                                                                             \
        return name;
        TUCCL_CALLS(X)
#undef X
    default:
        return "none";
    }
}

static inline bool tuccl_splits(uint32_t operation) {
    return (tuccl_flow(operation) & TUCCL_SPLITS) != 0;
}

static inline bool tuccl_joins(uint32_t operation) {
    return (tuccl_flow(operation) & TUCCL_JOINS) != 0;
}

static inline bool tuccl_is_reduction(uint32_t operation) {
    return (tuccl_flow(operation) & TUCCL_REDUCES) != 0;
}

static inline bool tuccl_has_root(uint32_t operation) {
    return (tuccl_flow(operation) & (TUCCL_FROM_ROOT | TUCCL_TO_ROOT)) != 0;
}

/* Whether the larger buffer has a part for each rank. */
static inline bool tuccl_is_divided(uint32_t operation) {
    return tuccl_splits(operation) || tuccl_joins(operation);
}

/* Whether the input is one part; in place, the rank's part of the output. */
static inline bool tuccl_input_is_part(uint32_t operation) {
    return tuccl_joins(operation) && !tuccl_splits(operation);
}

/* Whether the output is one part; in place, the rank's part of the input. */
static inline bool tuccl_output_is_part(uint32_t operation) {
    return tuccl_splits(operation) && !tuccl_joins(operation);
}

/* Whether NCCL takes calls in place. */
static inline bool tuccl_has_place(uint32_t operation) {
    return !(tuccl_splits(operation) && tuccl_joins(operation));
}

/* Whether NCCL asks its tuner about calls, and estimates them. */
static inline bool tuccl_asks_tuner(uint32_t operation) {
    return operation < TUCCL_ASKED_ABOUT;
}

#endif
