/* A bundle's choices for one communicator: the state behind NCCL's tuner context. */
#ifndef TUCCL_SELECTION_H
#define TUCCL_SELECTION_H

#include "bundle.h"
#include "tuner_abi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* ncclFunc_t 0 to 4: broadcast, reduce, all_gather, reduce_scatter, all_reduce. NCCL asks
     * tuners for these only; other values mean different operations in different releases. */
    TUCCL_FUNCTIONS = 5,
};

struct tuccl_choices {
    const uint64_t *min_bytes; /* Separate, so that a search touches fewer cache lines. */
    const struct tuccl_choice *choice;
    uint32_t count;
};

/* Choices for a class of communicators, by where their ranks sit. NCCL's estimate for ring with
 * Simple tells the class of a call: a line over its size. */
struct tuccl_placement {
    double latency_us; /* Times the operations that a call pipelines. */
    double us_per_byte;
    double tolerance; /* Relative distance from the line up to which an estimate is of the class. */
    struct tuccl_choices choices;
};

struct tuccl_placements {
    const struct tuccl_placement *placement;
    uint32_t count; /* 0: a shape's communicators are not told apart. */
};

struct tuccl_control;
struct tuccl_request;

/* What the calls of a communicator were answered with last, for NCCL's questions about the chunks
 * of their parts. In a group NCCL asks about all calls before it asks about parts, in one order on
 * all ranks; so what is found here is of the group itself, and the same on each rank. */
struct tuccl_answers {
    /* Bits 0 to 7 algorithm, 8 to 15 protocol, 16 to 23 the chunks' size as in struct tuccl_choice;
     * 0 where NCCL decides. */
    _Atomic uint32_t of_function[TUCCL_FUNCTIONS];
};

struct tuccl_selection {
    size_t mapped_bytes;
    size_t ranks;
    bool pat_adds_averages_up;     /* Then no reduce_scatter runs PAT: it may be an average. */
    struct tuccl_answers *answers; /* All else is read-only. */
    /* NULL unless calls are chosen by a control block: then there are no entries. */
    struct tuccl_control *control;
    /* NULL unless the executor's requests count. For the rails that it splits they choose, and
     * there are no entries. */
    struct tuccl_request *request;
    uint32_t entry_count;
    uint32_t without_chunks; /* Entries that are left out as NCCL asks about no chunks. */
    struct tuccl_choices of_function[TUCCL_FUNCTIONS];
    /* Looked at before `of_function`. */
    struct tuccl_placements placements_of_function[TUCCL_FUNCTIONS];
    /* NULL unless lookups are explained. */
    tuccl_nccl_logger explain;
};

/* Copies the entries of one shape into read-only pages, so that lookups from any thread need no
 * lock. Entries without a built-in configuration are left out: there NCCL decides. So are those
 * with a chunk size if NCCL does not ask about chunks, as they were not timed without. Without
 * `placed` no communicators are told apart. `request`: the executor's for the job's communicator,
 * may be NULL. NULL without memory. */
struct tuccl_selection *tuccl_selection_create(const struct tuccl_bundle *bundle,
                                               const struct tuccl_shape_record *shape, bool placed,
                                               bool asks_about_chunks, bool pat_adds_averages_up,
                                               struct tuccl_request *request,
                                               tuccl_nccl_logger explain);

/* A selection without entries that obeys a control block, which it owns from then on, or the
 * executor's requests; the other one is NULL. NULL without memory. */
struct tuccl_selection *tuccl_selection_create_obeying(size_t ranks, struct tuccl_control *control,
                                                       struct tuccl_request *request);

void tuccl_selection_free(struct tuccl_selection *selection);

/* Returns the choice for a call, NULL where NCCL decides: where no range contains `bytes`, and for
 * other functions than the five. Same semantics as lookup_tables/lookup.py. */
const struct tuccl_choice *tuccl_selection_find(const struct tuccl_selection *selection,
                                                int function, size_t bytes);

/* Returns the choice of the only class that NCCL's estimate for ring with Simple fits, NULL where
 * it fits none or several, or the class has no entry: then that of the shape counts, which suits
 * all classes. Same semantics as lookup_placed of lookup_tables/lookup.py. */
const struct tuccl_choice *tuccl_selection_find_placed(const struct tuccl_selection *selection,
                                                       int function, size_t bytes,
                                                       double estimate_us, int pipelined);

#endif
