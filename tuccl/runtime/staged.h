/* Staged programs: checked as a whole before any use.
 *
 * A program that passes cannot make an executor reach outside its buffers, write to the caller's
 * input, wait for ever, or receive a chunk in a round that uses it otherwise. Statements of a stage
 * may be run one after the other on each rank, a message when both ranks have come to it: the first
 * statement that is not done can always go on. The compiler proves that the program computes its
 * operation (synthesizer/programs/staged/staged_proof.py). */
#ifndef TUCCL_STAGED_H
#define TUCCL_STAGED_H

#include "staged_layout.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tuccl_staged {
    const struct tuccl_staged_header *header;
    const struct tuccl_staged_rank *ranks;
    const struct tuccl_staged_item *items;
    const struct tuccl_statement *statements;
};

/* Returns whether `data`, at a multiple of 8, is a sound staged program; if not, `why` names the
 * fault. `staged` points into `data`. */
bool tuccl_staged_check(const void *data, size_t bytes, struct tuccl_staged *staged, char *why,
                        size_t why_bytes);

/* The staged program of a schedule in a sound section of programs; false without one. */
bool tuccl_staged_at(const void *section, uint32_t index, struct tuccl_staged *staged);

/* For program_section.c: points at the records behind a sound header. */
void tuccl_staged_place(const void *data, struct tuccl_staged *staged);

static inline uint32_t tuccl_staged_items(const struct tuccl_staged_header *header) {
    return 2 * header->rounds + 1;
}

/* Returns the chunks of a rank's buffer; 0 where the caller may pass a null pointer. */
uint32_t tuccl_staged_buffer_chunks(const struct tuccl_staged *staged, uint32_t rank,
                                    uint32_t buffer);

#ifdef __cplusplus
}
#endif

#endif
