/* TUCCL_EXPLAIN: one line per call with its entry and the change of the cost table. */
#ifndef TUCCL_EXPLAIN_H
#define TUCCL_EXPLAIN_H

#include "selection.h"

#include <stdbool.h>

/* Writes the cost table into `text`, without entries that cannot run. */
void tuccl_describe_costs(char *text, size_t text_bytes, const float *cost, int algorithms,
                          int protocols);

/* Logs a call without an entry. */
void tuccl_explain_no_entry(const struct tuccl_selection *selection, int function, size_t bytes);

/* Logs a call with an entry. The costs come from tuccl_describe_costs; NULL for v2, which has no
 * cost table. */
void tuccl_explain_choice(const struct tuccl_selection *selection, int function, size_t bytes,
                          const struct tuccl_choice *choice, bool applied, const char *costs_before,
                          const char *costs_after);

#endif
