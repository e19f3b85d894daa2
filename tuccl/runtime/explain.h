/* TUCCL_EXPLAIN: one line per call on which entry applied and what it did to the cost table. */
#ifndef TUCCL_EXPLAIN_H
#define TUCCL_EXPLAIN_H

#include "selection.h"

/* The cost table as text in `text`, entries that cannot run left out. */
void tuccl_describe_costs(char *text, size_t text_bytes, const float *cost, int algorithms,
                          int protocols);

/* Logs one call. `costs_before` and `costs_after` come from tuccl_describe_costs, empty for v2. */
void tuccl_explain_call(const struct tuccl_selection *selection, int function, size_t bytes,
                        const struct tuccl_choice *choice, const char *outcome,
                        const char *costs_before, const char *costs_after);

#endif
