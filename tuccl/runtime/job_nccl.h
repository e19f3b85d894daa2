/* Version of this process's NCCL, from the library that called the plugin. */
#ifndef TUCCL_JOB_NCCL_H
#define TUCCL_JOB_NCCL_H

#include "tuner_abi.h"

#include <stdbool.h>

/* Returns whether NCCL's version differs from `wanted`, as in "2.28.9", and writes it to `found`
 * (at least 16 bytes). False as well if the version is unknown. */
bool tuccl_other_nccl(tuccl_nccl_logger logger, const char *wanted, char *found);

#endif
