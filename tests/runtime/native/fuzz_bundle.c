/* Mutated bundles, loaded through the plugin's own init from a real file, then looked up in.
 *
 *   fuzz_bundle BUNDLE COUNT SEED damaged   flipped, truncated, extended: every one must be refused
 *                                           and no call changed
 *   fuzz_bundle BUNDLE COUNT SEED sealed    the CRC made right again, so that the checks behind it
 *                                           are what is tested: a call changes lawfully or not
 *
 * No bundle may take more than a few seconds or tens of megabytes to load. Crashes and undefined
 * behaviour are for the sanitizers to find. */
#define _GNU_SOURCE /* memfd_create. For this file alone: the plugin is compiled as it ships. */

#include "bundle_layout.h"
#include "crc32.h"
#include "harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MUTATIONS = 6, CALLS = 8, LARGEST_EXTENSION = 256 };

static const uint64_t telling_values[] = {0,
                                          1,
                                          7,
                                          8,
                                          0x7F,
                                          0xFF,
                                          0xFFFF,
                                          0x7FFFFFFF,
                                          0x80000000,
                                          0xFFFFFFFF,
                                          0xFFFFFFFFFFFFFFFF,
                                          0x7FFFFFFFFFFFFFFF,
                                          0x8000000000000000,
                                          0xFFFFFFFFFFFFFFF8};

struct image {
    unsigned char *data;
    size_t bytes;
};

static void mutate_once(struct image *image, uint64_t *state) {
    size_t at = (size_t)random_below(state, image->bytes);
    switch (random_below(state, MUTATIONS)) {
    case 0:
        image->data[at] ^= (unsigned char)(1u << random_below(state, 8));
        break;
    case 1:
        image->data[at] = (unsigned char)random_number(state);
        break;
    case 2: { /* A field replaced by a value at some border, or by the size of the file. */
        size_t width = random_below(state, 2) ? 4 : 8;
        uint64_t choice = random_below(state, sizeof telling_values / sizeof *telling_values + 1);
        uint64_t value = choice < sizeof telling_values / sizeof *telling_values
                             ? telling_values[choice]
                             : image->bytes;
        at &= ~(size_t)3;
        if (at + width <= image->bytes)
            memcpy(image->data + at, &value, width);
        break;
    }
    case 3:
        image->bytes = 1 + at;
        break;
    case 4: {
        size_t more = 1 + (size_t)random_below(state, LARGEST_EXTENSION);
        for (size_t i = 0; i < more; i++)
            image->data[image->bytes + i] = (unsigned char)random_number(state);
        image->bytes += more;
        break;
    }
    default: { /* A piece copied over another place. */
        size_t from = (size_t)random_below(state, image->bytes);
        size_t room = image->bytes - (at > from ? at : from);
        memmove(image->data + at, image->data + from, 1 + (size_t)random_below(state, room));
        break;
    }
    }
}

static void seal(struct image *image, uint64_t *state) {
    struct tuccl_bundle_header header;
    if (image->bytes < sizeof header)
        return;
    memcpy(&header, image->data, sizeof header);
    if (random_below(state, 10) > 0) { /* Mostly: let it pass the header's own checks. */
        memcpy(header.magic, TUCCL_BUNDLE_MAGIC, sizeof header.magic);
        header.version = TUCCL_BUNDLE_VERSION;
        header.header_bytes = sizeof header;
        header.total_bytes = image->bytes;
    }
    memcpy(image->data, &header, sizeof header);
    size_t field = offsetof(struct tuccl_bundle_header, crc);
    uint32_t crc = tuccl_crc32_around(image->data, image->bytes, field);
    memcpy(image->data + field, &crc, sizeof crc);
}

static void store(int file, const struct image *image) {
    CHECK(ftruncate(file, (off_t)image->bytes) == 0);
    CHECK(pwrite(file, image->data, image->bytes, 0) == (ssize_t)image->bytes);
}

static bool changes_calls(int abi, void *context, uint64_t *state) {
    bool changed = false;
    for (int i = 0; i < CALLS; i++) {
        struct call before = random_call(state);
        struct call after = before;
        plugin_call(abi, context, &after);
        CHECK(is_lawful(abi, &before, &after));
        size_t own = (size_t)random_below(state, 4 << 20);
        if (abi >= ABI_WITH_CHUNKS)
            plugin_chunk(abi, context, &after, (size_t)random_number(state), own);
        changed |= memcmp(&before, &after, sizeof before) != 0;
    }
    return changed;
}

int main(int count_of_arguments, char **arguments) {
    CHECK(count_of_arguments == 5);
    struct image original = {NULL, 0}, image;
    original.data = read_whole(arguments[1], &original.bytes);
    long count = strtol(arguments[2], NULL, 10);
    uint64_t state = strtoull(arguments[3], NULL, 10);
    bool sealed = strcmp(arguments[4], "sealed") == 0;
    image.data = malloc(original.bytes + 4 * LARGEST_EXTENSION);
    int file = memfd_create("bundle", MFD_CLOEXEC);
    char path[64];
    CHECK(image.data != NULL && file >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    CHECK(setenv("TUCCL_BUNDLE", path, 1) == 0);
    long used = 0, effective = 0;
    for (long i = 0; i < count; i++) {
        memcpy(image.data, original.data, original.bytes);
        image.bytes = original.bytes;
        do
            for (uint64_t n = 1 + random_below(&state, 3); n > 0; n--)
                mutate_once(&image, &state);
        while (image.bytes == original.bytes &&
               memcmp(image.data, original.data, original.bytes) == 0 && !sealed);
        if (sealed)
            seal(&image, &state);
        store(file, &image);
        int abi = OLDEST_ABI + (int)(i % (NEWEST_ABI - OLDEST_ABI + 1));
        void *context = (void *)0x1;
        struct cost before = cost_so_far();
        CHECK(plugin_init(abi, 8, 1, &context) == 0);
        check_cost(before);
        bool changed = changes_calls(abi, context, &state);
        CHECK(sealed || (context == NULL && !changed));
        used += context != NULL;
        effective += changed;
        plugin_end(abi, context);
    }
    /* One warning for each cause that occurred, however many bundles were refused. */
    CHECK(warning_count() >= 1 && warning_count() <= 4);
    printf("%ld bundles, %ld usable, %ld changed a call, %d warnings\n", count, used, effective,
           warning_count());
    free(image.data);
    free(original.data);
    close(file);
    return 0;
}
