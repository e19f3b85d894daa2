/* Counters of a communicator's calls: a table of fixed size that any threads fill without a lock.
 *
 * A slot is claimed once and never freed. A thread that meets a slot which another is claiming goes
 * on to the next, so a call may have two slots; readers add them up. */
#ifndef TUCCL_CALL_TABLE_H
#define TUCCL_CALL_TABLE_H

#include "recorded_call.h"

#include <stddef.h>

struct tuccl_call_table;

struct tuccl_counted_call {
    struct tuccl_recorded_call call;
    bool has_count; /* Else calls of any count, summed. */
    uint64_t calls;
    uint64_t elements; /* Of all calls, where they are summed. */
};

/* NULL where memory is short. */
struct tuccl_call_table *tuccl_call_table_create(void);
void tuccl_call_table_free(struct tuccl_call_table *table);

/* Counts a call; `before` becomes the number of its like that were counted before. Calls of a count
 * of its own become a sum when the table is full; false: not even the sums have a place.
 * Point-to-point calls are always summed. */
bool tuccl_call_table_count(struct tuccl_call_table *table, const struct tuccl_recorded_call *call,
                            uint64_t *before);

/* How many calls the table has, and one of them; false: a thread is adding it right now. */
size_t tuccl_call_table_claimed(const struct tuccl_call_table *table);
bool tuccl_call_table_read(const struct tuccl_call_table *table, size_t place,
                           struct tuccl_counted_call *counted);

#endif
