/* Counters of a communicator's calls: a table of fixed size that any threads fill without a lock.
 *
 * A slot is claimed once and never freed. A thread that meets a slot which another is claiming goes
 * on to the next, so a call may have two slots; readers add them up. */
#ifndef TUCCL_CALL_TABLE_H
#define TUCCL_CALL_TABLE_H

#include "../collectives.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A call as the recorder counts it, and its words in NCCL's and in TuCCL's names. */

/* Elements by ncclDataType_t; RECORDED_BYTES are bytes whose type is unknown. */
enum { RECORDED_DATATYPES = 12, RECORDED_BYTES = RECORDED_DATATYPES };
/* ncclRedOp_t below 5; then those that the program made; then unknown. */
enum { RECORDED_CUSTOM_REDUCTION = 5, RECORDED_NO_REDUCTION };
enum tuccl_recorded_answer { RECORDED_UNKNOWN, RECORDED_NO, RECORDED_YES };

struct tuccl_recorded_call {
    uint8_t operation; /* enum tuccl_operation */
    uint8_t datatype;
    uint8_t reduction;
    uint8_t in_place;
    uint8_t graph;
    uint64_t count; /* Elements, as NCCL's function takes them. */
};

/* Each returns false for a name or number that it does not know. */
bool tuccl_operation_named(const char *nccl_name, uint8_t *operation);
bool tuccl_operation_numbered(unsigned number, uint8_t *operation);
bool tuccl_datatype_named(const char *nccl_name, uint8_t *datatype);
bool tuccl_datatype_numbered(unsigned number, uint8_t *datatype);

/* NULL: unknown. */
const char *tuccl_datatype_name(unsigned datatype);
const char *tuccl_reduction_name(unsigned reduction);
uint64_t tuccl_element_bytes(unsigned datatype);

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
