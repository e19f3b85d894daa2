/* Compiled programs: checked as a whole before any use.
 *
 * A program that passes cannot make an interpreter reach outside its buffers, its peers' staging
 * areas or its records, nor wait for ever: every message has a receiver, and a rehearsal on
 * connections of the real depth completed. Its compiler proves that it computes its operation
 * (synthesizer/programs/flow.py). */
#ifndef TUCCL_PROGRAM_H
#define TUCCL_PROGRAM_H

#include "program_layout.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tuccl_program {
    const struct tuccl_program_header *header;
    const struct tuccl_program_rank *ranks;
    const struct tuccl_program_threadblock *threadblocks;
    const struct tuccl_program_step *steps;
};

/* Returns whether `data`, at a multiple of 8, is a sound program; if not, `why` names the fault.
 * `program` points into `data`. */
bool tuccl_program_check(const void *data, size_t bytes, struct tuccl_program *program, char *why,
                         size_t why_bytes);

/* Returns the chunks of a rank's buffer; 0 where the caller may pass a null pointer. */
uint32_t tuccl_program_buffer_chunks(const struct tuccl_program *program, uint32_t rank,
                                     uint32_t buffer);

/* Returns the chunks of one rank's part of the larger buffer, or of all of it without parts. */
uint32_t tuccl_program_part_chunks(const struct tuccl_program_header *header);

/* Returns whether a bundle's section of programs and each program in it are sound: programs of this
 * version, phased ones (phased.h) and staged ones (staged.h). */
bool tuccl_programs_check(const void *section, size_t bytes, char *why, size_t why_bytes);

/* Number of programs in a sound section; the program of a schedule, false without one and for one
 * of another version, which tuccl_phased_at or tuccl_staged_at gives. */
uint32_t tuccl_programs_count(const void *section);
bool tuccl_programs_at(const void *section, uint32_t index, struct tuccl_program *program);

/* For program.c, phased.c and staged.c: returns whether `data` begins with the header of a program
 * of this version, has its size and its sum; if not, `why` names the fault. */
bool tuccl_program_is_sealed(const void *data, size_t bytes, uint32_t version, char *why,
                             size_t why_bytes);

/* For program.c: returns whether every threadblock completes (program_rehearsal.c). */
bool tuccl_program_ends(const struct tuccl_program *program);

/* Properties of a step's type. */
static inline bool tuccl_step_sends(uint32_t type) {
    return type == TUCCL_STEP_S || type == TUCCL_STEP_RCS || type == TUCCL_STEP_RRS ||
           type == TUCCL_STEP_RRCS;
}
static inline bool tuccl_step_receives(uint32_t type) {
    return type >= TUCCL_STEP_R && type <= TUCCL_STEP_RRCS;
}
static inline bool tuccl_step_reads(uint32_t type) {
    return type == TUCCL_STEP_S || (type >= TUCCL_STEP_RRC && type <= TUCCL_STEP_CPY);
}
static inline bool tuccl_step_writes(uint32_t type) {
    return type != TUCCL_STEP_S && type != TUCCL_STEP_RRS && type != TUCCL_STEP_NOP;
}

#ifdef __cplusplus
}
#endif

#endif
