/* Which NCCL this process runs, asked of the library that called the plugin. */
#ifndef TUCCL_JOB_NCCL_H
#define TUCCL_JOB_NCCL_H

#include "tuner_abi.h"

#include <stdbool.h>

/* Whether NCCL is of another version than `wanted`, as in "2.28.9"; then `found` (a text of at
 * least 16 bytes) is its version. False as well where that cannot be told. */
bool tuccl_other_nccl(tuccl_nccl_logger logger, const char *wanted, char *found);

#endif
