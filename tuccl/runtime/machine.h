/* Comparison of a table's hosts with this one, read from PCI sysfs. */
#ifndef TUCCL_MACHINE_H
#define TUCCL_MACHINE_H

#include "bundle.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for every reason. */
enum { TUCCL_MACHINE_WHY_BYTES = 256 };

/* Returns whether a table may be used on the host under `sysfs_root`. False if it has GPUs of a
 * listed vendor but none of a listed model, or compute GPUs of other vendors alone. False too if
 * it has GPUs of a listed model, but fewer than each host of the table, or with fewer GPUs close to
 * them; or, for communicators across hosts, fewer NICs, NICs at other rates, or with fewer GPUs
 * close to them. True if that is not known. If false, `why` names the first difference. */
bool tuccl_machine_matches(const char *sysfs_root, const struct tuccl_bundle *bundle,
                           bool across_hosts, char *why, size_t why_bytes);

/* Returns the number of GPUs of the table's models on the host; 0 if it is not known. */
uint32_t tuccl_machine_gpus(const char *sysfs_root, const struct tuccl_bundle *bundle);

#endif
