/* A collective as nccl-tests counts it: the elements that each rank reads and writes. */
#ifndef TUCCL_MEASURE_COLLECTIVE_H
#define TUCCL_MEASURE_COLLECTIVE_H

#include "../collectives.h"
#include "failure.h"

#include <stddef.h>
#include <stdint.h>

/* ncclDataType_t. */
enum data_type {
    TYPE_INT8 = 0,
    TYPE_UINT8 = 1,
    TYPE_INT32 = 2,
    TYPE_UINT32 = 3,
    TYPE_INT64 = 4,
    TYPE_UINT64 = 5,
    TYPE_FLOAT16 = 6,
    TYPE_FLOAT32 = 7,
    TYPE_FLOAT64 = 8,
    TYPE_BFLOAT16 = 9,
    DATA_TYPES,
};

/* One collective. A root is rank 0. */
struct collective {
    enum tuccl_operation operation;
    enum data_type type;
    bool in_place;
    bool averages; /* A reduction has the average, else the sum. */
    int ranks, rank;
    size_t element_bytes;
    /* As the NCCL function takes it. */
    size_t count;
    size_t send_bytes, receive_bytes;
    /* Offset of an in-place call's smaller buffer in the larger one. */
    size_t send_offset, receive_offset;
};

size_t data_type_bytes(enum data_type type);

size_t larger_buffer_bytes(const struct collective *collective);

/* The collective of `size_bytes` in nccl-tests' sense, of the larger buffer. False when the size is
 * no whole number of elements for each rank, or there is no such call. */
bool make_collective(struct collective *collective, int operation, int type, uint64_t size_bytes,
                     bool in_place, int ranks, int rank, struct failure *failure);

/* The known data of a check: small integers whose sums are exact in every data type and order.
 *
 * Element i of rank r's input is a number drawn from (r, i modulo PATTERN_ELEMENTS). The period is
 * prime, so data that is shifted by a power of two of elements is found wrong. */

enum { PATTERN_ELEMENTS = 262139, LARGEST_ELEMENT_BYTES = 8 };

/* Returns 64 random bits for an element of a rank. */
uint64_t pattern_draw(uint64_t rank, uint64_t element);

/* Writes the first `elements` of a rank's input to `table`, at most one period of PATTERN_ELEMENTS.
 */
void pattern_of_rank(enum data_type type, int ranks, int rank, size_t elements, void *table);

/* Writes the same elements of the sum over all ranks. */
void pattern_of_sum(enum data_type type, int ranks, size_t elements, void *table);

#endif
