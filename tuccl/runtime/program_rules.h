/* For program.c: the rules of each kind of phase. Header, ranks and sizes are sound already. */
#ifndef TUCCL_PROGRAM_RULES_H
#define TUCCL_PROGRAM_RULES_H

#include "program_layout.h"

#include <stddef.h>

/* Return what is wrong; NULL if nothing is. */
const char *tuccl_fault_of_steps(const struct tuccl_program *program);
const char *tuccl_fault_of_uniform(const struct tuccl_program *program);
const char *tuccl_fault_of_statements(const struct tuccl_program *program);

static inline bool tuccl_lies_within(uint32_t offset, uint32_t count, uint32_t chunks) {
    return offset <= chunks && count <= chunks - offset;
}

#endif
