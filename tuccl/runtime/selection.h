/* What a bundle says for one communicator: the state behind NCCL's tuner context. */
#ifndef TUCCL_SELECTION_H
#define TUCCL_SELECTION_H

#include "bundle.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* ncclFunc_t 0 to 4: broadcast, reduce, all_gather, reduce_scatter, all_reduce. NCCL asks
     * tuners for these only; other values mean different operations in different releases. */
    TUCCL_FUNCTIONS = 5,
};

/* A built-in configuration, by NCCL's cost table indices. */
struct tuccl_choice {
    uint64_t min_bytes;
    uint64_t max_bytes;
    uint8_t algorithm;
    uint8_t protocol;
    uint16_t nchannels; /* 0: leave NCCL's count. */
    float builtin_time_us;
    float default_time_us;
};

struct tuccl_choices {
    const uint64_t *min_bytes; /* Apart from the rest: a search touches fewer cache lines. */
    const struct tuccl_choice *choice;
    uint32_t count;
};

struct tuccl_control;

struct tuccl_selection {
    size_t mapped_bytes;
    /* NULL unless calls are chosen by a control block: then there are no entries. */
    struct tuccl_control *control;
    uint32_t entry_count;
    struct tuccl_choices of_function[TUCCL_FUNCTIONS];
    /* NULL unless each lookup is to be explained. */
    void (*explain)(int level, unsigned long flags, const char *file, int line, const char *format,
                    ...);
};

/* Whether NCCL takes a tuner's channel count for this algorithm without a bound of its own (NCCL
 * 2.30 src/enqueue.cc): nothing would catch a count above the channels that a communicator has. */
bool tuccl_channels_are_unbounded(uint8_t algorithm, size_t nodes);

/* Copies what concerns one shape into read-only pages of its own, so that lookups from any thread
 * need no lock. Entries without a built-in configuration are left out: there the plugin leaves
 * NCCL alone. NULL when there is no memory. */
struct tuccl_selection *
tuccl_selection_create(const struct tuccl_bundle *bundle, const struct tuccl_shape_record *shape,
                       void (*explain)(int, unsigned long, const char *, int, const char *, ...));

/* A selection that asks `control`, which it owns from then on. NULL when there is no memory. */
struct tuccl_selection *tuccl_selection_create_controlled(struct tuccl_control *control);

void tuccl_selection_free(struct tuccl_selection *selection);

/* The choice for a call, NULL where NCCL is left alone: where no range holds `bytes`, and for any
 * function but the five. Same semantics as lookup_tables/lookup.py. */
const struct tuccl_choice *tuccl_selection_find(const struct tuccl_selection *selection,
                                                int function, size_t bytes);

#endif
