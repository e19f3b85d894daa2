/* A bundle in memory: its header is checked first, then the file is read and checked as a whole
 * before any use. */
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
    const struct tuccl_placement_record *placements; /* By shape and operation; NULL without. */
    uint32_t placement_count;
    const struct tuccl_entry_record *placed_entries;
    uint32_t placed_entry_count;
    const struct tuccl_gpu_model_record *gpu_models;
    uint32_t gpu_model_count;
    const char *text;
    uint32_t text_bytes;
    const struct tuccl_profile_record *profile;
    uint32_t profile_count;
    const struct tuccl_host_device_record *host_devices; /* By kind of host; NULL without. */
    uint32_t host_device_count;
    const struct tuccl_profile_record *variables; /* NULL where they are not known. */
    uint32_t variable_count;
    const struct tuccl_sum_record *sums; /* NULL unless sums do not move. */
    uint32_t sum_count;
    const struct tuccl_setting_record *settings; /* NULL without. */
    uint32_t setting_count;
    const struct tuccl_runners_up_record *runners_up; /* NULL without. */
    uint32_t runners_up_count;
    const struct tuccl_runner_up_schedule_record *runner_up_schedules; /* NULL without. */
    uint32_t runner_up_schedule_count;
    const struct tuccl_schedule_record *schedules; /* By number, as entries name them. */
    uint32_t schedule_count;
    const void *programs; /* Checked by program.h later; NULL without programs. */
    size_t program_bytes;
};

/* Reads and checks the file at `path`. After TUCCL_BUNDLE_GOOD every range, code and count of
 * `bundle` lies within bounds; otherwise `why` names the fault and `bundle` is empty. */
enum tuccl_bundle_fault tuccl_bundle_load(const char *path, struct tuccl_bundle *bundle, char *why,
                                          size_t why_bytes);

void tuccl_bundle_free(struct tuccl_bundle *bundle);

/* Returns whether a record is a valid entry: sizes in order, codes and channels in range. Every
 * entry of a loaded bundle is; its schedule need not have a program. */
bool tuccl_entry_is_sound(const struct tuccl_entry_record *entry);

/* Returns the entries of a communicator shape, NULL if there are none. */
const struct tuccl_shape_record *tuccl_bundle_shape(const struct tuccl_bundle *bundle,
                                                    uint64_t ranks, uint64_t nodes,
                                                    uint64_t ranks_per_node);

#endif
