#include "selection.h"
#include "control.h"
#include "tuner_abi.h"

#include <sys/mman.h>

static uint32_t count_builtin(const struct tuccl_bundle *bundle, struct tuccl_range_record range) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < range.count; i++)
        count += bundle->entries[range.first + i].algorithm != TUCCL_NO_CODE;
    return count;
}

bool tuccl_channels_are_unbounded(uint8_t algorithm, size_t nodes) {
    return algorithm == NCCL_ALGO_COLLNET_DIRECT || algorithm == NCCL_ALGO_COLLNET_CHAIN ||
           (algorithm == NCCL_ALGO_NVLS && nodes > 1);
}

static struct tuccl_choice choice_of(const struct tuccl_entry_record *entry, uint32_t nodes) {
    return (struct tuccl_choice){
        .min_bytes = entry->min_bytes,
        .max_bytes = entry->max_bytes,
        .algorithm = entry->algorithm,
        .protocol = entry->protocol,
        .nchannels = tuccl_channels_are_unbounded(entry->algorithm, nodes) ? 0 : entry->nchannels,
        .builtin_time_us = entry->builtin_time_us,
        .default_time_us = entry->default_time_us,
    };
}

struct tuccl_selection *
tuccl_selection_create(const struct tuccl_bundle *bundle, const struct tuccl_shape_record *shape,
                       void (*explain)(int, unsigned long, const char *, int, const char *, ...)) {
    uint32_t total = 0;
    for (int function = 0; function < TUCCL_FUNCTIONS; function++)
        total += count_builtin(bundle, shape->of_operation[function]);
    size_t bytes = sizeof(struct tuccl_selection) +
                   (size_t)total * (sizeof(uint64_t) + sizeof(struct tuccl_choice));
    struct tuccl_selection *selection =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (selection == MAP_FAILED)
        return NULL;
    uint64_t *min_bytes = (uint64_t *)(selection + 1);
    struct tuccl_choice *choice = (struct tuccl_choice *)(min_bytes + total);
    selection->mapped_bytes = bytes;
    selection->entry_count = total;
    selection->explain = explain;
    for (int function = 0; function < TUCCL_FUNCTIONS; function++) {
        struct tuccl_choices *choices = &selection->of_function[function];
        struct tuccl_range_record range = shape->of_operation[function];
        *choices = (struct tuccl_choices){min_bytes, choice, 0};
        for (uint32_t i = 0; i < range.count; i++) {
            const struct tuccl_entry_record *entry = &bundle->entries[range.first + i];
            if (entry->algorithm == TUCCL_NO_CODE)
                continue;
            *choice = choice_of(entry, shape->nodes);
            *min_bytes++ = choice++->min_bytes;
            choices->count++;
        }
    }
    if (mprotect(selection, bytes, PROT_READ) != 0) {
        munmap(selection, bytes);
        return NULL;
    }
    return selection;
}

static struct tuccl_selection *create_empty(void) {
    size_t bytes = sizeof(struct tuccl_selection);
    struct tuccl_selection *selection =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (selection == MAP_FAILED)
        return NULL;
    selection->mapped_bytes = bytes;
    return selection;
}

struct tuccl_selection *tuccl_selection_create_controlled(struct tuccl_control *control) {
    struct tuccl_selection *selection = create_empty();
    if (selection != NULL)
        selection->control = control;
    return selection;
}

struct tuccl_selection *tuccl_selection_create_for_rail(struct tuccl_rail_request *rail) {
    struct tuccl_selection *selection = create_empty();
    if (selection != NULL)
        selection->rail = rail;
    return selection;
}

void tuccl_selection_free(struct tuccl_selection *selection) {
    if (selection == NULL)
        return;
    tuccl_control_close(selection->control);
    munmap(selection, selection->mapped_bytes);
}

const struct tuccl_choice *tuccl_selection_find(const struct tuccl_selection *selection,
                                                int function, size_t bytes) {
    if (selection == NULL || function < 0 || function >= TUCCL_FUNCTIONS)
        return NULL;
    const struct tuccl_choices *choices = &selection->of_function[function];
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
