/* Phased programs: checked as a whole before any use.
 *
 * A program that passes cannot make an executor reach outside its buffers, write to the caller's
 * input, or hand a call operands that share memory other than NCCL allows. Its compiler proves that
 * it computes its operation (synthesizer/programs/phase_proof.py). */
#ifndef TUCCL_PHASED_H
#define TUCCL_PHASED_H

#include "phase_layout.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tuccl_phased {
    const struct tuccl_phased_header *header;
    const struct tuccl_phase *phases;
};

/* Returns whether `data`, at a multiple of 8, is a sound phased program; if not, `why` names the
 * fault. `phased` points into `data`. */
bool tuccl_phased_check(const void *data, size_t bytes, struct tuccl_phased *phased, char *why,
                        size_t why_bytes);

/* The phased program of a schedule in a sound section of programs; false without one. */
bool tuccl_phased_at(const void *section, uint32_t index, struct tuccl_phased *phased);

/* Calls of a phase, and the chunks that one call reads and writes. `group` is the number of ranks
 * of the node or of the rail. */
static inline uint32_t tuccl_phase_calls(const struct tuccl_phase *phase) {
    return phase->kind == TUCCL_PHASE_SUM ? 1 : phase->repeats;
}
uint32_t tuccl_phase_group(const struct tuccl_phased_header *header,
                           const struct tuccl_phase *phase);
uint64_t tuccl_phase_source_chunks(const struct tuccl_phase *phase, uint32_t group);
uint64_t tuccl_phase_target_chunks(const struct tuccl_phase *phase, uint32_t group);

#ifdef __cplusplus
}
#endif

#endif
