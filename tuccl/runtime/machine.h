/* Which GPU models this host has, read from PCI sysfs. */
#ifndef TUCCL_MACHINE_H
#define TUCCL_MACHINE_H

#include "bundle_layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether the GPUs under `sysfs_root` are ones that the table was tuned on. True as well when the
 * list or sysfs says nothing. GPUs of a vendor that the list does not name (a processor's own
 * display unit) count only when no GPU of a listed vendor is here. When false, `why` names the
 * GPU model that is not in the list. */
bool tuccl_machine_matches(const char *sysfs_root, const struct tuccl_gpu_model_record *models,
                           uint32_t model_count, char *why, size_t why_bytes);

#endif
