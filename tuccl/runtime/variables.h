/* Comparison of a job's NCCL variables with those of a table. */
#ifndef TUCCL_VARIABLES_H
#define TUCCL_VARIABLES_H

#include "bundle.h"

#include <stdbool.h>
#include <stddef.h>

/* Returns whether variables of this process differ from those that the table was measured with, its
 * process profile included, and names them in `text`, as many as it holds, each with its value here
 * and, in brackets, that of the table. False where those of the table are not known. With the
 * executor a process may lack what that sets on communicators. */
bool tuccl_variables_differ(const struct tuccl_bundle *bundle, bool has_executor, char *text,
                            size_t text_bytes);

#endif
