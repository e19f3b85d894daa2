/* The loader of programs: seals, headers, ranks and the bundle's section. */
#include "program.h"

#include "crc32.h"
#include "program_rules.h"

#include <stdio.h>
#include <string.h>

static const char *fault_of_seal(const void *data, size_t bytes) {
    const struct tuccl_program_header *header = data;
    size_t field = offsetof(struct tuccl_program_header, crc);
    if (bytes < sizeof *header || memcmp(header->magic, TUCCL_PROGRAM_MAGIC, 8) != 0)
        return "is no program";
    if (bytes > TUCCL_PROGRAM_MOST_BYTES)
        return "is larger than any program";
    if (header->version != TUCCL_PROGRAM_VERSION || header->features != 0)
        return "is one of a newer release";
    if (header->bytes != bytes || tuccl_crc32_around(data, bytes, field) != header->crc)
        return "is damaged";
    return NULL;
}

static bool header_is_sound(const struct tuccl_program_header *header) {
    uint32_t known =
        TUCCL_PROGRAM_RUNS_IN_PLACE | TUCCL_PROGRAM_AVERAGES | TUCCL_PROGRAM_IS_UNIFORM;
    return header->operation < TUCCL_OPERATIONS && (header->flags & ~known) == 0 &&
           ((header->flags & TUCCL_PROGRAM_AVERAGES) == 0 ||
            tuccl_is_reduction(header->operation)) &&
           header->nodes >= 1 && header->nodes <= TUCCL_PROGRAM_MOST_NODES && header->ranks >= 2 &&
           header->ranks >= header->nodes &&
           header->ranks <= header->nodes * TUCCL_PROGRAM_MOST_RANKS &&
           header->root < (tuccl_has_root(header->operation) ? header->ranks : 1) &&
           header->chunks >= 1 &&
           header->chunks <= TUCCL_PROGRAM_MOST_CHUNKS / tuccl_program_parts(header) &&
           header->phase_count >= 1 && header->phase_count <= TUCCL_PROGRAM_MOST_PHASES &&
           header->lanes >= 1 && header->lanes <= TUCCL_PROGRAM_MOST_LANES && header->zero == 0;
}

static uint32_t rank_records(const struct tuccl_program_header *header) {
    return tuccl_program_is_uniform(header) ? 1 : header->ranks;
}

static bool size_is_sound(const struct tuccl_program_header *header) {
    uint64_t size = sizeof *header + rank_records(header) * sizeof(struct tuccl_program_rank) +
                    header->phase_count * sizeof(struct tuccl_phase);
    size += (uint64_t)header->threadblock_count * sizeof(struct tuccl_program_threadblock);
    size += (uint64_t)header->step_count * sizeof(struct tuccl_program_step);
    size += (uint64_t)header->statement_count * sizeof(struct tuccl_statement);
    return size == header->bytes;
}

/* Points at the records behind a header whose size is sound. */
static void place(const void *data, struct tuccl_program *program) {
    const struct tuccl_program_header *header = program->header = data;
    program->ranks = (const void *)(header + 1);
    program->phases = (const void *)(program->ranks + rank_records(header));
    program->threadblocks = (const void *)(program->phases + header->phase_count);
    program->steps = (const void *)(program->threadblocks + header->threadblock_count);
    program->statements = (const void *)(program->steps + header->step_count);
}

/* The ranks of a node follow one another, as nodes do. */
static bool ranks_are_sound(const struct tuccl_program *program) {
    const struct tuccl_program_header *header = program->header;
    bool uniform = tuccl_program_is_uniform(header);
    uint32_t node = 0, size = 0, scratch = 0;
    for (uint32_t i = 0; i < rank_records(header); i++) {
        const struct tuccl_program_rank *rank = &program->ranks[i];
        if (size > 0 && rank->node == node + 1) {
            node++;
            size = 0;
        }
        if (rank->node != node || ++size > TUCCL_PROGRAM_MOST_RANKS ||
            rank->scratch_chunks > TUCCL_PROGRAM_MOST_CHUNKS)
            return false;
        scratch = rank->scratch_chunks > scratch ? rank->scratch_chunks : scratch;
    }
    bool nodes_are_sound = uniform ? header->ranks % header->nodes == 0 : node + 1 == header->nodes;
    return nodes_are_sound && scratch == header->most_scratch_chunks;
}

static bool has_threadblocks(const struct tuccl_program *program) {
    const struct tuccl_program_header *header = program->header;
    if ((header->threadblock_count | header->step_count | header->most_threadblocks |
         header->most_connections | header->largest_message | header->longest_threadblock) != 0)
        return true;
    for (uint32_t i = 0; i < rank_records(header); i++)
        if (program->ranks[i].first_threadblock != 0 || program->ranks[i].threadblocks != 0 ||
            program->ranks[i].connections != 0)
            return true;
    return false;
}

/* The first phase tells what a program is made of: steps on one node, the collectives of a uniform
 * program, or statements. */
static const char *fault_of_phases(const struct tuccl_program *program) {
    const struct tuccl_program_header *header = program->header;
    uint8_t kind = program->phases[0].kind;
    bool steps = kind == TUCCL_PHASE_STEPS;
    bool uniform = kind >= TUCCL_PHASE_LOCAL && kind <= TUCCL_PHASE_SUM;
    if ((header->nodes == 1) != steps || tuccl_program_is_uniform(header) != uniform ||
        (header->lanes > 1 && steps) || (!steps && has_threadblocks(program)) ||
        (header->statement_count > 0 && kind < TUCCL_PHASE_STAGE))
        return "contradicts itself in its header";
    if (steps)
        return tuccl_fault_of_steps(program);
    return uniform ? tuccl_fault_of_uniform(program) : tuccl_fault_of_statements(program);
}

static const char *fault_of(const void *data, size_t bytes, struct tuccl_program *program) {
    const char *fault = fault_of_seal(data, bytes);
    if (fault != NULL)
        return fault;
    if (!header_is_sound(data) || !size_is_sound(data))
        return "contradicts itself in its header";
    place(data, program);
    if (!ranks_are_sound(program))
        return "contradicts itself in its ranks";
    return fault_of_phases(program);
}

bool tuccl_program_check(const void *data, size_t bytes, struct tuccl_program *program, char *why,
                         size_t why_bytes) {
    memset(program, 0, sizeof *program);
    const char *fault = fault_of(data, bytes, program);
    if (fault != NULL)
        snprintf(why, why_bytes, "%s", fault);
    return fault == NULL;
}

static const struct tuccl_programs_record *records_of(const void *section) {
    return (const void *)((const unsigned char *)section + sizeof(struct tuccl_programs_head));
}

static bool record_is_sound(const unsigned char *section,
                            const struct tuccl_programs_record *record, char *why,
                            size_t why_bytes) {
    static const unsigned char no_address[TUCCL_PROGRAM_HASH_BYTES];
    struct tuccl_program program;
    if (record->bytes == 0)
        return record->crc == 0 &&
               memcmp(record->content_address, no_address, sizeof no_address) == 0;
    return tuccl_program_check(section + record->offset, record->bytes, &program, why, why_bytes) &&
           program.header->crc == record->crc &&
           memcmp(program.header->content_address, record->content_address,
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

bool tuccl_programs_at(const void *section, uint32_t index, struct tuccl_program *program) {
    if (index >= tuccl_programs_count(section) || records_of(section)[index].bytes == 0)
        return false;
    place((const unsigned char *)section + records_of(section)[index].offset, program);
    return true;
}
