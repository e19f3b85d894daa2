/* Compiled programs: checked as a whole before any use.
 *
 * A program that passes cannot make an executor reach outside its buffers, its peers' staging areas
 * or its records, write to the caller's input, hand NCCL operands that share memory other than NCCL
 * allows, receive a chunk in a round that uses it otherwise, or wait for ever. Its compiler proves
 * that it computes its operation (synthesizer/programs/compiler.py). */
#ifndef TUCCL_PROGRAM_H
#define TUCCL_PROGRAM_H

#include "program_layout.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns whether `data`, at a multiple of 8, is a sound program; if not, `why` names the fault.
 * `program` points into `data`. */
bool tuccl_program_check(const void *data, size_t bytes, struct tuccl_program *program, char *why,
                         size_t why_bytes);

/* Returns whether a bundle's section of programs and each program in it are sound. */
bool tuccl_programs_check(const void *section, size_t bytes, char *why, size_t why_bytes);

/* Number of programs in a sound section; the program of a schedule, false without one. */
uint32_t tuccl_programs_count(const void *section);
bool tuccl_programs_at(const void *section, uint32_t index, struct tuccl_program *program);

#ifdef __cplusplus
}
#endif

#endif
