#include "selection.h"
#include "control.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

static uint32_t count_builtin(const struct tuccl_bundle *bundle, struct tuccl_range_record range) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < range.count; i++)
        count += bundle->entries[range.first + i].algorithm != TUCCL_NO_CODE;
    return count;
}

static struct tuccl_choice choice_of(const struct tuccl_entry_record *entry, uint32_t nodes) {
    return (struct tuccl_choice){
        .min_bytes = entry->min_bytes,
        .max_bytes = entry->max_bytes,
        .algorithm = entry->algorithm,
        .protocol = entry->protocol,
        .nchannels = tuccl_channels_are_unbounded(entry->algorithm, nodes) ? 0 : entry->nchannels,
        .chunk_log2 = entry->chunk_log2,
        .builtin_time_us = entry->builtin_time_us,
        .default_time_us = entry->default_time_us,
    };
}

/* Where the next record of each array of a selection goes. */
struct fill {
    bool takes_chunks;
    uint32_t without_chunks; /* Entries that are left out so far for their chunks. */
    struct tuccl_placement *placement;
    uint64_t *min_bytes;
    struct tuccl_choice *choice;
};

static struct tuccl_choices copy_entries(struct fill *fill,
                                         const struct tuccl_entry_record *entries,
                                         struct tuccl_range_record range, uint32_t nodes) {
    struct tuccl_choices choices = {fill->min_bytes, fill->choice, 0};
    for (uint32_t i = 0; i < range.count; i++) {
        const struct tuccl_entry_record *entry = &entries[range.first + i];
        bool left_out = entry->chunk_log2 != 0 && !fill->takes_chunks;
        fill->without_chunks += left_out;
        if (entry->algorithm == TUCCL_NO_CODE || left_out)
            continue;
        *fill->choice = choice_of(entry, nodes);
        *fill->min_bytes++ = fill->choice++->min_bytes;
        choices.count++;
    }
    return choices;
}

static struct tuccl_placements copy_placements(struct fill *fill, const struct tuccl_bundle *bundle,
                                               uint32_t shape, int function, uint32_t nodes) {
    struct tuccl_placements placements = {fill->placement, 0};
    for (uint32_t i = 0; i < bundle->placement_count; i++) {
        const struct tuccl_placement_record *record = &bundle->placements[i];
        if (record->shape != shape || record->operation != (uint32_t)function)
            continue;
        *fill->placement++ = (struct tuccl_placement){
            .latency_us = record->latency_us,
            .us_per_byte = record->us_per_byte,
            .tolerance = record->tolerance,
            .choices = copy_entries(fill, bundle->placed_entries, record->entries, nodes),
        };
        placements.count++;
    }
    return placements;
}

/* Numbers of a shape's placements and of their entries, which all have a built-in configuration. */
static struct tuccl_range_record count_placed(const struct tuccl_bundle *bundle, uint32_t shape) {
    struct tuccl_range_record counts = {0, 0};
    for (uint32_t i = 0; i < bundle->placement_count; i++)
        if (bundle->placements[i].shape == shape) {
            counts.first++;
            counts.count += bundle->placements[i].entries.count;
        }
    return counts;
}

static struct tuccl_selection *allocate(size_t bytes) {
    struct tuccl_selection *selection =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (selection == MAP_FAILED)
        return NULL;
    selection->mapped_bytes = bytes;
    selection->answers = calloc(1, sizeof *selection->answers);
    if (selection->answers == NULL) {
        munmap(selection, bytes);
        return NULL;
    }
    return selection;
}

struct tuccl_selection *tuccl_selection_create(const struct tuccl_bundle *bundle,
                                               const struct tuccl_shape_record *shape, bool placed,
                                               bool asks_about_chunks, bool pat_adds_averages_up,
                                               struct tuccl_request *request,
                                               tuccl_nccl_logger explain) {
    uint32_t own = (uint32_t)(shape - bundle->shapes);
    struct tuccl_range_record counts = {0, 0};
    if (placed)
        counts = count_placed(bundle, own);
    uint32_t total = counts.count;
    for (int function = 0; function < TUCCL_FUNCTIONS; function++)
        total += count_builtin(bundle, shape->of_operation[function]);
    size_t bytes = sizeof(struct tuccl_selection) +
                   (size_t)counts.first * sizeof(struct tuccl_placement) +
                   (size_t)total * (sizeof(uint64_t) + sizeof(struct tuccl_choice));
    struct tuccl_selection *selection = allocate(bytes);
    if (selection == NULL)
        return NULL;
    struct fill fill = {.takes_chunks = asks_about_chunks,
                        .placement = (struct tuccl_placement *)(selection + 1)};
    fill.min_bytes = (uint64_t *)(fill.placement + counts.first);
    fill.choice = (struct tuccl_choice *)(fill.min_bytes + total);
    selection->ranks = shape->ranks;
    selection->request = request;
    selection->explain = explain;
    selection->pat_adds_averages_up = pat_adds_averages_up;
    for (int function = 0; function < TUCCL_FUNCTIONS; function++) {
        selection->of_function[function] =
            copy_entries(&fill, bundle->entries, shape->of_operation[function], shape->nodes);
        if (placed)
            selection->placements_of_function[function] =
                copy_placements(&fill, bundle, own, function, shape->nodes);
    }
    selection->entry_count = total - fill.without_chunks;
    selection->without_chunks = fill.without_chunks;
    if (mprotect(selection, bytes, PROT_READ) != 0) {
        free(selection->answers);
        munmap(selection, bytes);
        return NULL;
    }
    return selection;
}

struct tuccl_selection *tuccl_selection_create_obeying(size_t ranks, struct tuccl_control *control,
                                                       struct tuccl_request *request) {
    struct tuccl_selection *selection = allocate(sizeof *selection);
    if (selection != NULL) {
        selection->ranks = ranks;
        selection->control = control;
        selection->request = request;
    }
    return selection;
}

void tuccl_selection_free(struct tuccl_selection *selection) {
    if (selection == NULL)
        return;
    tuccl_control_close(selection->control);
    free(selection->answers);
    munmap(selection, selection->mapped_bytes);
}

static const struct tuccl_choice *find_choice(const struct tuccl_choices *choices, size_t bytes) {
    /* The last range that starts at or below `bytes`. Written so that the compiler needs no branch
     * that depends on the data: mispredictions would cost more than the whole search. */
    const uint64_t *base = choices->min_bytes;
    uint32_t left = choices->count;
    while (left > 1) {
        uint32_t half = left / 2;
        base += base[half] <= bytes ? half : 0;
        left -= half;
    }
    if (left == 0 || *base > bytes)
        return NULL;
    const struct tuccl_choice *choice = choices->choice + (base - choices->min_bytes);
    return bytes <= choice->max_bytes ? choice : NULL;
}

const struct tuccl_choice *tuccl_selection_find(const struct tuccl_selection *selection,
                                                int function, size_t bytes) {
    if (selection == NULL || function < 0 || function >= TUCCL_FUNCTIONS)
        return NULL;
    return find_choice(&selection->of_function[function], bytes);
}

const struct tuccl_choice *tuccl_selection_find_placed(const struct tuccl_selection *selection,
                                                       int function, size_t bytes,
                                                       double estimate_us, int pipelined) {
    if (selection == NULL || function < 0 || function >= TUCCL_FUNCTIONS)
        return NULL;
    const struct tuccl_placements *placements = &selection->placements_of_function[function];
    const struct tuccl_placement *fitting = NULL;
    for (uint32_t i = 0; i < placements->count; i++) {
        const struct tuccl_placement *own = &placements->placement[i];
        double expected_us = own->latency_us * pipelined + own->us_per_byte * (double)bytes;
        if (!(fabs(estimate_us - expected_us) <= own->tolerance * expected_us))
            continue;
        if (fitting != NULL)
            return NULL;
        fitting = own;
    }
    return fitting != NULL ? find_choice(&fitting->choices, bytes) : NULL;
}
