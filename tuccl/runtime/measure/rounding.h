/* Numbers as types hold them, and data whose sums round: they show in which order the parts of an
 * element were added. */
#ifndef TUCCL_MEASURE_ROUNDING_H
#define TUCCL_MEASURE_ROUNDING_H

#include "collective.h"

/* Returns the number that an element holds. */
double number_of(enum data_type type, const void *element);

/* Returns whether sums of a type depend on the order of additions. */
bool type_rounds(enum data_type type);

/* Writes the first `elements` of a rank's input to `table`, at most one period of PATTERN_ELEMENTS:
 * numbers of all mantissas, of both signs and of eight exponents. `type` is one that rounds. */
void rounding_of_rank(enum data_type type, int rank, size_t elements, void *table);

/* Writes the same elements of the sum, added in the order of the ranks of each node, then of nodes
 * of `local_ranks` ranks: 16-bit floats in 32 bits, rounded once for each node and once at last. */
void rounding_of_sum(enum data_type type, int ranks, int local_ranks, size_t elements, void *table);

#endif
