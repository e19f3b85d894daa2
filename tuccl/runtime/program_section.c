/* The bundle's section of programs. */
#include "phased.h"
#include "program.h"
#include "staged.h"

#include <stdio.h>
#include <string.h>

static const struct tuccl_programs_record *records_of(const void *section) {
    return (const void *)((const unsigned char *)section + sizeof(struct tuccl_programs_head));
}

/* All versions begin alike. */
static uint32_t version_of(const void *data) {
    return ((const struct tuccl_program_header *)data)->version;
}

static bool program_is_sound(const unsigned char *data, size_t bytes, char *why, size_t why_bytes) {
    struct tuccl_program program;
    struct tuccl_phased phased;
    struct tuccl_staged staged;
    uint32_t version = bytes >= sizeof(struct tuccl_program_header) ? version_of(data) : 0;
    if (version == TUCCL_PHASED_VERSION)
        return tuccl_phased_check(data, bytes, &phased, why, why_bytes);
    if (version == TUCCL_STAGED_VERSION)
        return tuccl_staged_check(data, bytes, &staged, why, why_bytes);
    return tuccl_program_check(data, bytes, &program, why, why_bytes);
}

static bool record_is_sound(const unsigned char *section,
                            const struct tuccl_programs_record *record, char *why,
                            size_t why_bytes) {
    static const unsigned char no_address[TUCCL_PROGRAM_HASH_BYTES];
    const unsigned char *data = section + record->offset;
    const struct tuccl_program_header *header = (const void *)data;
    if (record->bytes == 0)
        return record->crc == 0 &&
               memcmp(record->content_address, no_address, sizeof no_address) == 0;
    return program_is_sound(data, record->bytes, why, why_bytes) && header->crc == record->crc &&
           memcmp(header->content_address, record->content_address,
                  sizeof record->content_address) == 0;
}

bool tuccl_programs_check(const void *section, size_t bytes, char *why, size_t why_bytes) {
    const struct tuccl_programs_head *head = section;
    const struct tuccl_programs_record *records = records_of(section);
    uint32_t programs = 0;
    if (bytes > TUCCL_PROGRAMS_MOST_BYTES) {
        snprintf(why, why_bytes, "they take %zu bytes, %d are the most", bytes,
                 TUCCL_PROGRAMS_MOST_BYTES);
        return false;
    }
    snprintf(why, why_bytes, "contradicts itself in its records");
    if (bytes < sizeof *head || head->zero != 0 ||
        head->count > (bytes - sizeof *head) / sizeof *records)
        return false;
    uint64_t end = sizeof *head + head->count * sizeof *records;
    for (uint32_t i = 0; i < head->count; i++) {
        if (records[i].offset != end || records[i].bytes > bytes - end || records[i].bytes % 8 != 0)
            return false;
        if (records[i].bytes > 0 && ++programs > TUCCL_PROGRAMS_MOST) {
            snprintf(why, why_bytes, "there are more than %d", TUCCL_PROGRAMS_MOST);
            return false;
        }
        if (!record_is_sound(section, &records[i], why, why_bytes))
            return false;
        end += records[i].bytes;
    }
    return end == bytes;
}

uint32_t tuccl_programs_count(const void *section) {
    return ((const struct tuccl_programs_head *)section)->count;
}

/* Returns a schedule's program of a version; NULL without one. */
static const void *program_at(const void *section, uint32_t index, uint32_t version) {
    if (index >= tuccl_programs_count(section) || records_of(section)[index].bytes == 0)
        return NULL;
    const unsigned char *data = (const unsigned char *)section + records_of(section)[index].offset;
    return version_of(data) == version ? data : NULL;
}

bool tuccl_programs_at(const void *section, uint32_t index, struct tuccl_program *program) {
    const unsigned char *data = program_at(section, index, TUCCL_PROGRAM_VERSION);
    if (data == NULL)
        return false;
    program->header = (const void *)data;
    program->ranks = (const void *)(data + sizeof *program->header);
    program->threadblocks = (const void *)(program->ranks + program->header->ranks);
    program->steps = (const void *)(program->threadblocks + program->header->threadblock_count);
    return true;
}

bool tuccl_phased_at(const void *section, uint32_t index, struct tuccl_phased *phased) {
    const unsigned char *data = program_at(section, index, TUCCL_PHASED_VERSION);
    if (data == NULL)
        return false;
    phased->header = (const void *)data;
    phased->phases = (const void *)(phased->header + 1);
    return true;
}

bool tuccl_staged_at(const void *section, uint32_t index, struct tuccl_staged *staged) {
    const void *data = program_at(section, index, TUCCL_STAGED_VERSION);
    if (data != NULL)
        tuccl_staged_place(data, staged);
    return data != NULL;
}
