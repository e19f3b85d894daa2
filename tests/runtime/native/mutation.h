/* Mutated programs, whose sum is set again. */
#ifndef TUCCL_TEST_MUTATION_H
#define TUCCL_TEST_MUTATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Checks mutated data and uses what the loader accepts; returns whether it did. */
typedef bool (*look)(const unsigned char *data, size_t bytes);

/* The main function of a fuzzer with the arguments
 *
 *   PROGRAM COUNT SEED     one program, whose sum is set again after each mutation
 *   SECTION COUNT SEED s   a bundle's section of programs; sums are left as they are
 *
 * Prints the number of mutated and of accepted inputs. */
int fuzz(int count_of_arguments, char **arguments, look at_section, look at_program);

#endif
