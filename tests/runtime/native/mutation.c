#include "mutation.h"

#include "crc32.h"
#include "harness.h"
#include "program_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t telling_values[] = {0,  1,    2,      3,          7,          8,
                                          80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};

static const size_t record_sizes[] = {8, 16, 24, 32};

static void mutate(unsigned char *data, size_t bytes, uint64_t *state) {
    size_t at = (size_t)random_below(state, bytes);
    switch (random_below(state, 4)) {
    case 0:
        data[at] ^= (unsigned char)(1u << random_below(state, 8));
        break;
    case 1:
        data[at] = (unsigned char)random_below(state, 10);
        break;
    case 2: {
        uint32_t value = telling_values[random_below(state, sizeof telling_values / 4)];
        memcpy(data + at / 4 * 4, &value, 4);
        break;
    }
    default: { /* A record over another. */
        size_t record_bytes = record_sizes[random_below(state, 4)],
               from = (size_t)random_below(state, bytes) / 8 * 8, to = at / 8 * 8;
        if (from + record_bytes <= bytes && to + record_bytes <= bytes)
            memmove(data + to, data + from, record_bytes);
        break;
    }
    }
}

/* Returns the first `bytes` of a program in memory of exactly this size, so that no read behind it
 * is missed: cut off in places, with none to three changes. */
static unsigned char *mutated(const unsigned char *original, size_t whole, uint64_t *state,
                              size_t *bytes) {
    *bytes = random_below(state, 20) ? whole : (size_t)random_below(state, whole);
    unsigned char *data = malloc(*bytes + 1);
    CHECK(data != NULL);
    memcpy(data, original, *bytes);
    for (uint64_t n = random_below(state, 4); n > 0 && *bytes >= 4; n--)
        mutate(data, *bytes / 4 * 4, state);
    return data;
}

static void set_sum(unsigned char *data, size_t bytes) {
    size_t field = offsetof(struct tuccl_program_header, crc);
    uint32_t crc = tuccl_crc32_around(data, bytes, field);
    memcpy(data + field, &crc, sizeof crc);
}

/* Sets a program's sum, and in half of the cases its size. */
static void seal(unsigned char *data, size_t bytes, uint64_t *state) {
    if (bytes < sizeof(struct tuccl_program_header))
        return;
    if (random_below(state, 2))
        ((struct tuccl_program_header *)(void *)data)->bytes = (uint32_t)bytes;
    set_sum(data, bytes);
}

int fuzz(int count_of_arguments, char **arguments, look at_section, look at_program) {
    CHECK(count_of_arguments == 4 || count_of_arguments == 5);
    size_t whole = 0;
    unsigned char *original = read_whole(arguments[1], &whole);
    long count = strtol(arguments[2], NULL, 10), accepted = 0;
    uint64_t state = strtoull(arguments[3], NULL, 10);
    bool section = count_of_arguments == 5;
    for (long i = 0; i < count; i++) {
        struct cost before = cost_so_far();
        size_t bytes = 0;
        unsigned char *data = mutated(original, whole, &state, &bytes);
        if (!section)
            seal(data, bytes, &state);
        accepted += (section ? at_section : at_program)(data, bytes);
        free(data);
        check_cost(before);
    }
    printf("%ld mutated, %ld accepted\n", count, accepted);
    free(original);
    return 0;
}
