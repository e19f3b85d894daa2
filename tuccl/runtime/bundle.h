/* A bundle in memory: its header is looked at first, then it is read whole and checked whole before
 * anything looks into it. */
#ifndef TUCCL_BUNDLE_H
#define TUCCL_BUNDLE_H

#include "bundle_layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tuccl_bundle_fault {
    TUCCL_BUNDLE_GOOD,
    TUCCL_BUNDLE_UNREADABLE,
    TUCCL_BUNDLE_DAMAGED,
    TUCCL_BUNDLE_OTHER_VERSION,
};

struct tuccl_bundle {
    const unsigned char *data;
    size_t bytes;
    uint32_t crc;
    const struct tuccl_shape_record *shapes;
    uint32_t shape_count;
    const struct tuccl_entry_record *entries;
    uint32_t entry_count;
    const struct tuccl_gpu_model_record *gpu_models;
    uint32_t gpu_model_count;
    const void *programs; /* For program.h, not yet checked; NULL without any. */
    size_t program_bytes;
};

/* Reads and checks the file at `path`. When the result is not TUCCL_BUNDLE_GOOD, `why` says in a
 * few words what is wrong and `bundle` holds nothing. After TUCCL_BUNDLE_GOOD every range, code and
 * count of `bundle` is known to lie within bounds. */
enum tuccl_bundle_fault tuccl_bundle_load(const char *path, struct tuccl_bundle *bundle, char *why,
                                          size_t why_bytes);

void tuccl_bundle_free(struct tuccl_bundle *bundle);

/* Whether a record may be an entry: sizes in order, codes and channels in range. Of a bundle that
 * was loaded every entry is; its schedule may be one that the bundle has no program of. */
bool tuccl_entry_is_sound(const struct tuccl_entry_record *entry);

/* The entries of one communicator shape, NULL when the bundle has none for it. */
const struct tuccl_shape_record *tuccl_bundle_shape(const struct tuccl_bundle *bundle,
                                                    uint64_t ranks, uint64_t nodes,
                                                    uint64_t ranks_per_node);

#endif
