/* The known data of a check: small integers whose sums are exact in every data type and order.
 *
 * Element i of rank r's input is a number drawn from (r, i modulo PATTERN_ELEMENTS). The period is
 * prime, so data that is shifted by a power of two of elements is found wrong. */
#ifndef TUCCL_MEASURE_PATTERN_H
#define TUCCL_MEASURE_PATTERN_H

#include "collective.h"

enum { PATTERN_ELEMENTS = 262139, LARGEST_ELEMENT_BYTES = 8 };

/* Writes the first `elements` of a rank's input to `table`, at most one period of PATTERN_ELEMENTS.
 */
void pattern_of_rank(enum data_type type, int ranks, int rank, size_t elements, void *table);

/* Writes the same elements of the sum over all ranks. */
void pattern_of_sum(enum data_type type, int ranks, size_t elements, void *table);

#endif
