/* The known data of a check: small whole numbers whose sums are exact in every data type and in
 * every order of adding.
 *
 * Element i of rank r's input is a number drawn from (r, i modulo PATTERN_ELEMENTS). The period is
 * prime, so data that is off by any power of two of elements does not pass for right. */
#ifndef TUCCL_MEASURE_PATTERN_H
#define TUCCL_MEASURE_PATTERN_H

#include "collective.h"

enum { PATTERN_ELEMENTS = 262139, LARGEST_ELEMENT_BYTES = 8 };

/* The first `elements` of a rank's input in `table`, at most PATTERN_ELEMENTS: one period. */
void pattern_of_rank(enum data_type type, int ranks, int rank, size_t elements, void *table);

/* The same of the sum over all ranks. */
void pattern_of_sum(enum data_type type, int ranks, size_t elements, void *table);

#endif
