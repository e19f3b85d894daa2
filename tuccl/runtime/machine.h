/* Comparison of a table's GPU models with those of this host, read from PCI sysfs. */
#ifndef TUCCL_MACHINE_H
#define TUCCL_MACHINE_H

#include "bundle_layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns whether a table tuned on `models` may be used on the host under `sysfs_root`: false if it
 * has GPUs of a listed vendor but none of a listed model, or compute GPUs of other vendors alone.
 * True as well if the list or sysfs is empty. If false, `why` names a GPU model of this host. */
bool tuccl_machine_matches(const char *sysfs_root, const struct tuccl_gpu_model_record *models,
                           uint32_t model_count, char *why, size_t why_bytes);

/* Returns the number of GPUs of these models on the host; 0 if it is not known. */
uint32_t tuccl_machine_gpus(const char *sysfs_root, const struct tuccl_gpu_model_record *models,
                            uint32_t model_count);

#endif
