#include "bundle.h"
#include "collectives.h"
#include "crc32.h"
#include "tuner_abi.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FEWEST_PLACEMENTS = 2,
    MOST_PLACEMENTS = 16,
};

static const size_t record_bytes_of[TUCCL_SECTION_KINDS] = {
    [TUCCL_SECTION_TEXT] = 1,
    [TUCCL_SECTION_IDENTITY] = sizeof(struct tuccl_identity_record),
    [TUCCL_SECTION_GPU_MODELS] = sizeof(struct tuccl_gpu_model_record),
    [TUCCL_SECTION_SHAPES] = sizeof(struct tuccl_shape_record),
    [TUCCL_SECTION_ENTRIES] = sizeof(struct tuccl_entry_record),
    [TUCCL_SECTION_PROFILE] = sizeof(struct tuccl_profile_record),
    [TUCCL_SECTION_SCHEDULES] = sizeof(struct tuccl_schedule_record),
    [TUCCL_SECTION_PROGRAMS] = 8,
    [TUCCL_SECTION_PLACEMENTS] = sizeof(struct tuccl_placement_record),
    [TUCCL_SECTION_PLACED_ENTRIES] = sizeof(struct tuccl_entry_record),
    [TUCCL_SECTION_HOST_DEVICES] = sizeof(struct tuccl_host_device_record),
    [TUCCL_SECTION_VARIABLES] = sizeof(struct tuccl_profile_record),
    [TUCCL_SECTION_SUMS] = sizeof(struct tuccl_sum_record),
    [TUCCL_SECTION_SETTINGS] = sizeof(struct tuccl_setting_record),
    [TUCCL_SECTION_RUNNERS_UP] = sizeof(struct tuccl_runners_up_record),
    [TUCCL_SECTION_RUNNER_UP_SCHEDULES] = sizeof(struct tuccl_runner_up_schedule_record),
};

static bool is_optional(uint32_t kind) {
    return kind == TUCCL_SECTION_PROGRAMS || kind == TUCCL_SECTION_PLACEMENTS ||
           kind == TUCCL_SECTION_PLACED_ENTRIES || kind == TUCCL_SECTION_HOST_DEVICES ||
           kind == TUCCL_SECTION_VARIABLES || kind == TUCCL_SECTION_SUMS ||
           kind == TUCCL_SECTION_SETTINGS || kind == TUCCL_SECTION_RUNNERS_UP ||
           kind == TUCCL_SECTION_RUNNER_UP_SCHEDULES;
}

struct directory {
    const struct tuccl_bundle_section *of_kind[TUCCL_SECTION_KINDS];
};

/* Checks a file's header; `header` may be shorter than a whole one. */
static enum tuccl_bundle_fault check_header(const struct tuccl_bundle_header *header, size_t bytes,
                                            char *why, size_t why_bytes) {
    size_t magic = bytes < sizeof header->magic ? bytes : sizeof header->magic;
    if (memcmp(header->magic, TUCCL_BUNDLE_MAGIC, magic) != 0) {
        snprintf(why, why_bytes, "is no TuCCL bundle");
        return TUCCL_BUNDLE_DAMAGED;
    }
    if (bytes < sizeof *header) {
        snprintf(why, why_bytes, "is truncated at %zu bytes", bytes);
        return TUCCL_BUNDLE_DAMAGED;
    }
    if (header->version != TUCCL_BUNDLE_VERSION) {
        snprintf(why, why_bytes, "has format %u, this plugin reads %d", header->version,
                 TUCCL_BUNDLE_VERSION);
        return TUCCL_BUNDLE_OTHER_VERSION;
    }
    if (header->total_bytes != bytes || header->header_bytes != sizeof *header) {
        snprintf(why, why_bytes, "is damaged: %zu bytes instead of %llu", bytes,
                 (unsigned long long)header->total_bytes);
        return TUCCL_BUNDLE_DAMAGED;
    }
    return TUCCL_BUNDLE_GOOD;
}

static enum tuccl_bundle_fault check_sum(const struct tuccl_bundle *bundle, char *why,
                                         size_t why_bytes) {
    const struct tuccl_bundle_header *header = (const void *)bundle->data;
    size_t field = offsetof(struct tuccl_bundle_header, crc);
    uint32_t crc = tuccl_crc32_around(bundle->data, bundle->bytes, field);
    if (crc != header->crc) {
        snprintf(why, why_bytes, "is damaged: CRC %08x instead of %08x", crc, header->crc);
        return TUCCL_BUNDLE_DAMAGED;
    }
    return TUCCL_BUNDLE_GOOD;
}

static bool section_fits(const struct tuccl_bundle *bundle,
                         const struct tuccl_bundle_section *section) {
    return section->offset % 8 == 0 && section->offset <= bundle->bytes &&
           section->bytes <= bundle->bytes - section->offset;
}

static enum tuccl_bundle_fault read_directory(const struct tuccl_bundle *bundle,
                                              struct directory *directory, char *why,
                                              size_t why_bytes) {
    const struct tuccl_bundle_header *header = (const void *)bundle->data;
    const struct tuccl_bundle_section *sections = (const void *)(bundle->data + sizeof *header);
    snprintf(why, why_bytes, "contradicts itself in its sections");
    if (header->section_count > (bundle->bytes - sizeof *header) / sizeof *sections)
        return TUCCL_BUNDLE_DAMAGED;
    for (uint32_t i = 0; i < header->section_count; i++) {
        const struct tuccl_bundle_section *section = &sections[i];
        if (!section_fits(bundle, section))
            return TUCCL_BUNDLE_DAMAGED;
        bool known = section->kind < TUCCL_SECTION_KINDS && record_bytes_of[section->kind] > 0;
        if (!known && (section->flags & TUCCL_SECTION_REQUIRED)) {
            snprintf(why, why_bytes, "needs section %u, which a newer release introduced",
                     section->kind);
            return TUCCL_BUNDLE_OTHER_VERSION;
        }
        if (!known)
            continue;
        if (directory->of_kind[section->kind] != NULL ||
            section->record_bytes != record_bytes_of[section->kind] ||
            (uint64_t)section->record_count * section->record_bytes != section->bytes)
            return TUCCL_BUNDLE_DAMAGED;
        directory->of_kind[section->kind] = section;
    }
    for (uint32_t kind = 0; kind < TUCCL_SECTION_KINDS; kind++)
        if (record_bytes_of[kind] > 0 && directory->of_kind[kind] == NULL && !is_optional(kind))
            return TUCCL_BUNDLE_DAMAGED;
    if ((directory->of_kind[TUCCL_SECTION_PLACEMENTS] == NULL) !=
        (directory->of_kind[TUCCL_SECTION_PLACED_ENTRIES] == NULL))
        return TUCCL_BUNDLE_DAMAGED;
    return directory->of_kind[TUCCL_SECTION_IDENTITY]->record_count == 1 ? TUCCL_BUNDLE_GOOD
                                                                         : TUCCL_BUNDLE_DAMAGED;
}

static const void *records(const struct tuccl_bundle *bundle, const struct directory *directory,
                           enum tuccl_section_kind kind, uint32_t *count) {
    *count = directory->of_kind[kind]->record_count;
    return bundle->data + directory->of_kind[kind]->offset;
}

bool tuccl_entry_is_sound(const struct tuccl_entry_record *entry) {
    if (entry->min_bytes > entry->max_bytes || entry->nchannels > TUCCL_MOST_NCHANNELS)
        return false;
    if ((entry->flags & ~TUCCL_ENTRY_IN_WINDOWS) != 0)
        return false;
    if (entry->schedule != TUCCL_NO_SCHEDULE && entry->schedule_protocol >= NCCL_PROTOCOLS)
        return false;
    if (!tuccl_chunk_is_sound(entry->algorithm, entry->chunk_log2))
        return false;
    return entry->algorithm == TUCCL_NO_CODE ||
           (entry->algorithm < NCCL_ALGORITHMS && entry->protocol < NCCL_PROTOCOLS);
}

static bool entries_are_sound(const struct tuccl_bundle *bundle, struct tuccl_range_record range) {
    for (uint32_t i = range.first; i < range.first + range.count; i++) {
        if (!tuccl_entry_is_sound(&bundle->entries[i]))
            return false;
        if (i > range.first && bundle->entries[i].min_bytes <= bundle->entries[i - 1].max_bytes)
            return false;
    }
    return true;
}

/* Returns whether the ranges of a shape, in any order of operations, are exactly the entries from
 * `*next` on; advances `*next` past them. */
static bool take_ranges(const struct tuccl_bundle *bundle, const struct tuccl_shape_record *shape,
                        uint32_t *next) {
    int left = 0;
    for (int code = 0; code < TUCCL_OPERATION_SLOTS; code++) {
        struct tuccl_range_record range = shape->of_operation[code];
        if (range.first > bundle->entry_count || range.count > bundle->entry_count - range.first ||
            (range.count > 0 && code >= TUCCL_OPERATIONS))
            return false;
        left += range.count > 0;
    }
    for (; left > 0; left--) {
        int code = 0;
        while (code < TUCCL_OPERATIONS &&
               (shape->of_operation[code].count == 0 || shape->of_operation[code].first != *next))
            code++;
        if (code == TUCCL_OPERATIONS || !entries_are_sound(bundle, shape->of_operation[code]))
            return false;
        *next += shape->of_operation[code].count;
    }
    return true;
}

static int compare_shape(const struct tuccl_shape_record *shape, uint64_t ranks, uint64_t nodes,
                         uint64_t ranks_per_node) {
    if (shape->ranks != ranks)
        return shape->ranks < ranks ? -1 : 1;
    if (shape->nodes != nodes)
        return shape->nodes < nodes ? -1 : 1;
    if (shape->ranks_per_node != ranks_per_node)
        return shape->ranks_per_node < ranks_per_node ? -1 : 1;
    return 0;
}

static bool shapes_are_sound(const struct tuccl_bundle *bundle) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < bundle->shape_count; i++) {
        const struct tuccl_shape_record *shape = &bundle->shapes[i];
        if (i > 0 &&
            compare_shape(shape - 1, shape->ranks, shape->nodes, shape->ranks_per_node) >= 0)
            return false;
        if (!take_ranges(bundle, shape, &next))
            return false;
    }
    return next == bundle->entry_count;
}

static bool is_positive(double value) {
    return value > 0.0 && value < INFINITY;
}

static bool placement_is_sound(const struct tuccl_bundle *bundle,
                               const struct tuccl_placement_record *placement) {
    struct tuccl_range_record range = placement->entries;
    if (placement->shape >= bundle->shape_count || !tuccl_asks_tuner(placement->operation) ||
        placement->zero != 0 || !is_positive(placement->latency_us) ||
        !is_positive(placement->us_per_byte) || !is_positive(placement->tolerance) ||
        placement->tolerance >= 1.0f || range.count > bundle->placed_entry_count - range.first)
        return false;
    for (uint32_t i = range.first; i < range.first + range.count; i++) {
        const struct tuccl_entry_record *entry = &bundle->placed_entries[i];
        if (!tuccl_entry_is_sound(entry) || entry->algorithm == TUCCL_NO_CODE ||
            entry->schedule != TUCCL_NO_SCHEDULE)
            return false;
        if (i > range.first && entry->min_bytes <= bundle->placed_entries[i - 1].max_bytes)
            return false;
    }
    return true;
}

/* Returns whether the placements of each shape and operation follow one another, as many as tell
 * communicators apart, and have all placed entries in turn. */
static bool placements_are_sound(const struct tuccl_bundle *bundle) {
    uint32_t next = 0, alike = 0;
    for (uint32_t i = 0; i < bundle->placement_count; i++) {
        const struct tuccl_placement_record *placement = &bundle->placements[i];
        if (placement->entries.first != next || !placement_is_sound(bundle, placement))
            return false;
        next += placement->entries.count;
        bool continues = i > 0 && placement[-1].shape == placement->shape &&
                         placement[-1].operation == placement->operation;
        bool ascends = i == 0 || placement[-1].shape < placement->shape ||
                       (placement[-1].shape == placement->shape &&
                        placement[-1].operation < placement->operation);
        if (!continues && (!ascends || (i > 0 && alike < FEWEST_PLACEMENTS)))
            return false;
        alike = continues ? alike + 1 : 1;
        if (alike > MOST_PLACEMENTS)
            return false;
    }
    return next == bundle->placed_entry_count &&
           (bundle->placement_count == 0 || alike >= FEWEST_PLACEMENTS);
}

static bool text_is_sound(const struct tuccl_bundle *bundle, struct tuccl_text_record text) {
    return text.offset <= bundle->text_bytes && text.bytes <= bundle->text_bytes - text.offset;
}

static bool pairs_are_sound(const struct tuccl_bundle *bundle,
                            const struct tuccl_profile_record *pairs, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (!text_is_sound(bundle, pairs[i].name) || !text_is_sound(bundle, pairs[i].value))
            return false;
    return true;
}

/* Returns whether kinds of hosts are numbered from 0 in order, without gaps. */
static bool host_devices_are_sound(const struct tuccl_bundle *bundle) {
    uint32_t last = 0;
    if (bundle->host_device_count > TUCCL_MOST_HOST_DEVICES)
        return false;
    for (uint32_t i = 0; i < bundle->host_device_count; i++) {
        const struct tuccl_host_device_record *device = &bundle->host_devices[i];
        bool follows = device->host == last || (i > 0 && device->host == last + 1);
        if (!follows || device->kind >= TUCCL_DEVICE_KINDS || device->count == 0 ||
            device->zero != 0 || !text_is_sound(bundle, device->name))
            return false;
        last = device->host;
    }
    return true;
}

static bool has_sums(const struct tuccl_bundle *bundle, uint32_t shape, uint32_t operation) {
    for (uint32_t i = 0; i < bundle->sum_count; i++)
        if (bundle->sums[i].shape == shape && bundle->sums[i].operation == operation)
            return true;
    return false;
}

/* Returns whether the entries of a shape and operation serve every size: one that they leave to
 * NCCL would add in another order. */
static bool serves_every_size(const struct tuccl_bundle *bundle, struct tuccl_range_record range) {
    uint64_t next = 1;
    for (uint32_t i = range.first; i < range.first + range.count; i++) {
        if (bundle->entries[i].min_bytes != next)
            return false;
        next = bundle->entries[i].max_bytes + 1;
    }
    return next == (uint64_t)INT64_MAX + 1;
}

/* Returns whether all operations that reduce have one order each, for every size, or none has. */
static bool sums_are_sound(const struct tuccl_bundle *bundle) {
    if (bundle->sums == NULL)
        return true;
    for (uint32_t i = 0; i < bundle->sum_count; i++) {
        const struct tuccl_sum_record *own = &bundle->sums[i];
        if (own->shape >= bundle->shape_count || own->operation >= TUCCL_OPERATIONS ||
            !tuccl_is_reduction(own->operation) || !text_is_sound(bundle, own->order) ||
            !serves_every_size(bundle, bundle->shapes[own->shape].of_operation[own->operation]))
            return false;
    }
    for (uint32_t shape = 0; shape < bundle->shape_count; shape++)
        for (uint32_t operation = 0; operation < TUCCL_OPERATIONS; operation++)
            if (tuccl_is_reduction(operation) &&
                bundle->shapes[shape].of_operation[operation].count > 0 &&
                !has_sums(bundle, shape, operation))
                return false;
    for (uint32_t i = 0; i < bundle->placement_count; i++)
        if (tuccl_is_reduction(bundle->placements[i].operation) &&
            bundle->placements[i].entries.count > 0)
            return false;
    return bundle->sum_count > 0;
}

static void find_facts(struct tuccl_bundle *bundle, const struct directory *directory) {
    bundle->text = records(bundle, directory, TUCCL_SECTION_TEXT, &bundle->text_bytes);
    bundle->profile = records(bundle, directory, TUCCL_SECTION_PROFILE, &bundle->profile_count);
    if (directory->of_kind[TUCCL_SECTION_HOST_DEVICES] != NULL)
        bundle->host_devices =
            records(bundle, directory, TUCCL_SECTION_HOST_DEVICES, &bundle->host_device_count);
    if (directory->of_kind[TUCCL_SECTION_VARIABLES] != NULL)
        bundle->variables =
            records(bundle, directory, TUCCL_SECTION_VARIABLES, &bundle->variable_count);
    if (directory->of_kind[TUCCL_SECTION_SUMS] != NULL)
        bundle->sums = records(bundle, directory, TUCCL_SECTION_SUMS, &bundle->sum_count);
    if (directory->of_kind[TUCCL_SECTION_SETTINGS] != NULL)
        bundle->settings =
            records(bundle, directory, TUCCL_SECTION_SETTINGS, &bundle->setting_count);
    if (directory->of_kind[TUCCL_SECTION_RUNNERS_UP] != NULL)
        bundle->runners_up =
            records(bundle, directory, TUCCL_SECTION_RUNNERS_UP, &bundle->runners_up_count);
    if (directory->of_kind[TUCCL_SECTION_RUNNER_UP_SCHEDULES] != NULL)
        bundle->runner_up_schedules = records(bundle, directory, TUCCL_SECTION_RUNNER_UP_SCHEDULES,
                                              &bundle->runner_up_schedule_count);
    bundle->schedules =
        records(bundle, directory, TUCCL_SECTION_SCHEDULES, &bundle->schedule_count);
}

static bool word_is_sound(uint32_t word, uint32_t nodes) {
    struct tuccl_choice choice;
    return tuccl_requested_choice(word, &choice) && choice.algorithm < NCCL_ALGORITHMS &&
           choice.protocol < NCCL_PROTOCOLS && choice.nchannels <= TUCCL_MOST_NCHANNELS &&
           (choice.nchannels == 0 || !tuccl_channels_are_unbounded(choice.algorithm, nodes)) &&
           tuccl_chunk_is_sound(choice.algorithm, choice.chunk_log2);
}

static bool runners_up_are_sound(const struct tuccl_bundle *bundle) {
    for (uint32_t i = 0; i < bundle->runners_up_count; i++) {
        const struct tuccl_runners_up_record *own = &bundle->runners_up[i];
        if (own->ranks == 0 || own->nodes == 0 || own->nodes > own->ranks ||
            !tuccl_asks_tuner(own->operation) || own->min_bytes > own->max_bytes ||
            own->count == 0 || own->count > TUCCL_MOST_RUNNERS_UP)
            return false;
        for (uint32_t j = 0; j < TUCCL_MOST_RUNNERS_UP; j++)
            if (j < own->count ? !word_is_sound(own->words[j], own->nodes) : own->words[j] != 0)
                return false;
    }
    return true;
}

static bool runner_up_schedules_are_sound(const struct tuccl_bundle *bundle) {
    for (uint32_t i = 0; i < bundle->runner_up_schedule_count; i++) {
        const struct tuccl_runner_up_schedule_record *own = &bundle->runner_up_schedules[i];
        if (own->ranks == 0 || own->nodes == 0 || own->nodes > own->ranks ||
            own->operation >= TUCCL_OPERATIONS || !tuccl_entry_is_sound(&own->entry) ||
            own->entry.algorithm != TUCCL_NO_CODE || own->entry.schedule >= bundle->schedule_count)
            return false;
    }
    return true;
}

static bool schedules_are_sound(const struct tuccl_bundle *bundle) {
    for (uint32_t i = 0; i < bundle->schedule_count; i++)
        if (!text_is_sound(bundle, bundle->schedules[i].content_hash) ||
            !text_is_sound(bundle, bundle->schedules[i].name))
            return false;
    return true;
}

static bool settings_are_sound(const struct tuccl_bundle *bundle) {
    for (uint32_t i = 0; i < bundle->setting_count; i++) {
        const struct tuccl_setting_record *own = &bundle->settings[i];
        if (own->ranks < 2 || own->nodes == 0 || own->zero != 0 ||
            !pairs_are_sound(bundle, &own->pair, 1))
            return false;
    }
    return true;
}

static bool facts_are_sound(const struct tuccl_bundle *bundle) {
    return pairs_are_sound(bundle, bundle->profile, bundle->profile_count) &&
           pairs_are_sound(bundle, bundle->variables, bundle->variable_count) &&
           host_devices_are_sound(bundle) && settings_are_sound(bundle) &&
           runners_up_are_sound(bundle) && runner_up_schedules_are_sound(bundle) &&
           schedules_are_sound(bundle);
}

static enum tuccl_bundle_fault check_contents(struct tuccl_bundle *bundle, char *why,
                                              size_t why_bytes) {
    struct directory directory = {{NULL}};
    enum tuccl_bundle_fault fault = read_directory(bundle, &directory, why, why_bytes);
    if (fault != TUCCL_BUNDLE_GOOD)
        return fault;
    bundle->shapes = records(bundle, &directory, TUCCL_SECTION_SHAPES, &bundle->shape_count);
    bundle->entries = records(bundle, &directory, TUCCL_SECTION_ENTRIES, &bundle->entry_count);
    bundle->gpu_models =
        records(bundle, &directory, TUCCL_SECTION_GPU_MODELS, &bundle->gpu_model_count);
    const struct tuccl_bundle_section *programs = directory.of_kind[TUCCL_SECTION_PROGRAMS];
    if (programs != NULL) {
        bundle->programs = bundle->data + programs->offset;
        bundle->program_bytes = programs->bytes;
    }
    if (directory.of_kind[TUCCL_SECTION_PLACEMENTS] != NULL) {
        bundle->placements =
            records(bundle, &directory, TUCCL_SECTION_PLACEMENTS, &bundle->placement_count);
        bundle->placed_entries =
            records(bundle, &directory, TUCCL_SECTION_PLACED_ENTRIES, &bundle->placed_entry_count);
    }
    find_facts(bundle, &directory);
    if (!shapes_are_sound(bundle) || !placements_are_sound(bundle) || !facts_are_sound(bundle) ||
        !sums_are_sound(bundle)) {
        snprintf(why, why_bytes, "contradicts itself in its entries");
        return TUCCL_BUNDLE_DAMAGED;
    }
    return TUCCL_BUNDLE_GOOD;
}

static bool fail(char *why, size_t why_bytes, const char *step, int error) {
    char text[128] = "";
    if (error == 0) {
        snprintf(why, why_bytes, "%s", step);
        return false;
    }
    /* strerror is not thread-safe, and communicators start in several threads. The type selects
     * POSIX's strerror_r, which _GNU_SOURCE would replace. */
    int (*describe)(int, char *, size_t) = strerror_r;
    if (describe(error, text, sizeof text) != 0)
        snprintf(text, sizeof text, "error %d", error);
    snprintf(why, why_bytes, "%s: %s", step, text);
    return false;
}

static int fill(int file, unsigned char *data, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = pread(file, data + done, bytes - done, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return errno;
        if (got == 0) /* Truncated while being read. */
            return EIO;
        done += (size_t)got;
    }
    return 0;
}

static bool is_readable(int file, size_t most_bytes, size_t *bytes, char *why, size_t why_bytes) {
    struct stat status;
    if (fstat(file, &status) != 0)
        return fail(why, why_bytes, "cannot be examined", errno);
    if (!S_ISREG(status.st_mode))
        return fail(why, why_bytes, "is no regular file", 0);
    if (status.st_size <= 0)
        return fail(why, why_bytes, "is empty", 0);
    if ((uint64_t)status.st_size > most_bytes) {
        snprintf(why, why_bytes, "is too large: %lld bytes, %zu are the most",
                 (long long)status.st_size, most_bytes);
        return false;
    }
    *bytes = (size_t)status.st_size;
    return true;
}

/* Opens the regular file at `path` and sets `*bytes` to its size. Returns the descriptor, or -1
 * with the reason in `why`, also for an empty file or one above `most_bytes`. Reads nothing, so
 * that a wrong file costs nothing. */
static int open_file(const char *path, size_t most_bytes, size_t *bytes, char *why,
                     size_t why_bytes) {
    /* O_NONBLOCK: opening a FIFO without a writer would hang the job. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0) {
        fail(why, why_bytes, "cannot be opened", errno);
        return -1;
    }
    if (is_readable(file, most_bytes, bytes, why, why_bytes))
        return file;
    close(file);
    return -1;
}

/* Reads the first bytes of the file; false with the reason in `why`. */
static bool read_start(int file, void *start, size_t bytes, char *why, size_t why_bytes) {
    int error = fill(file, start, bytes);
    return error == 0 || fail(why, why_bytes, "cannot be read", error);
}

/* Returns the first `bytes` in private read-only pages, NULL with the reason in `why`. Free with
 * munmap. */
static const unsigned char *read_pages(int file, size_t bytes, char *why, size_t why_bytes) {
    /* Not a mapping of the file: truncating a mapped file kills its readers with SIGBUS, and
     * writing to it in place would change the table of a running job on some of its ranks. */
    unsigned char *data =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        fail(why, why_bytes, "does not fit in memory", errno);
        return NULL;
    }
    int error = fill(file, data, bytes);
    if (error == 0 && mprotect(data, bytes, PROT_READ) != 0)
        error = errno;
    if (error == 0)
        return data;
    munmap(data, bytes);
    fail(why, why_bytes, "cannot be read", error);
    return NULL;
}

/* Checks the header first, so that a file that is no bundle, such as a checkpoint, is not read
 * further. */
static enum tuccl_bundle_fault read_bundle(int file, struct tuccl_bundle *bundle, char *why,
                                           size_t why_bytes) {
    struct tuccl_bundle_header header = {{0}, 0, 0, 0, 0, 0};
    size_t start = bundle->bytes < sizeof header ? bundle->bytes : sizeof header;
    if (!read_start(file, &header, start, why, why_bytes))
        return TUCCL_BUNDLE_UNREADABLE;
    enum tuccl_bundle_fault fault = check_header(&header, bundle->bytes, why, why_bytes);
    if (fault != TUCCL_BUNDLE_GOOD)
        return fault;
    bundle->data = read_pages(file, bundle->bytes, why, why_bytes);
    if (bundle->data == NULL)
        return TUCCL_BUNDLE_UNREADABLE;
    /* Checked again: the file may have changed meanwhile. */
    fault = check_header((const void *)bundle->data, bundle->bytes, why, why_bytes);
    return fault == TUCCL_BUNDLE_GOOD ? check_sum(bundle, why, why_bytes) : fault;
}

enum tuccl_bundle_fault tuccl_bundle_load(const char *path, struct tuccl_bundle *bundle, char *why,
                                          size_t why_bytes) {
    memset(bundle, 0, sizeof *bundle);
    int file = open_file(path, TUCCL_LARGEST_BUNDLE_BYTES, &bundle->bytes, why, why_bytes);
    if (file < 0)
        return TUCCL_BUNDLE_UNREADABLE;
    enum tuccl_bundle_fault fault = read_bundle(file, bundle, why, why_bytes);
    close(file);
    if (fault == TUCCL_BUNDLE_GOOD)
        fault = check_contents(bundle, why, why_bytes);
    if (fault != TUCCL_BUNDLE_GOOD) {
        tuccl_bundle_free(bundle);
        return fault;
    }
    bundle->crc = ((const struct tuccl_bundle_header *)(const void *)bundle->data)->crc;
    return TUCCL_BUNDLE_GOOD;
}

void tuccl_bundle_free(struct tuccl_bundle *bundle) {
    if (bundle->data != NULL)
        munmap((void *)(uintptr_t)bundle->data, bundle->bytes);
    memset(bundle, 0, sizeof *bundle);
}

const struct tuccl_shape_record *tuccl_bundle_shape(const struct tuccl_bundle *bundle,
                                                    uint64_t ranks, uint64_t nodes,
                                                    uint64_t ranks_per_node) {
    uint32_t low = 0, high = bundle->shape_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = compare_shape(&bundle->shapes[middle], ranks, nodes, ranks_per_node);
        if (order == 0)
            return &bundle->shapes[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}
