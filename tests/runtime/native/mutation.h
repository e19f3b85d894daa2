/* Mutated programs of any version, whose sum is set again. */
#ifndef TUCCL_TEST_MUTATION_H
#define TUCCL_TEST_MUTATION_H

#include <stddef.h>
#include <stdint.h>

/* Returns the first `bytes` of a program in memory of exactly this size, so that no read behind it
 * is missed: cut off in places, with none to three changes. */
unsigned char *mutated(const unsigned char *original, size_t whole, size_t record_bytes,
                       uint64_t *state, size_t *bytes);

/* Sets a program's sum, and in half of the cases its size. */
void seal(unsigned char *data, size_t bytes, uint64_t *state);

#endif
