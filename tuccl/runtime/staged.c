/* The rules of a staged program; synthesizer/programs/staged/staged_form.py has the same ones. */
#include "staged.h"

#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As in executor/executor.h and the bundle. */
enum { BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, ALLTOALL, OPERATIONS };

static bool refuse(char *why, size_t why_bytes, const char *reason) {
    snprintf(why, why_bytes, "%s", reason);
    return false;
}

static bool is_divided(uint32_t operation) {
    return operation == ALL_GATHER || operation == REDUCE_SCATTER || operation == ALLTOALL;
}

static bool reduces(uint32_t operation) {
    return operation == REDUCE || operation == REDUCE_SCATTER || operation == ALL_REDUCE;
}

static bool runs_in_place(const struct tuccl_staged_header *header) {
    return (header->flags & TUCCL_PROGRAM_RUNS_IN_PLACE) != 0;
}

uint32_t tuccl_staged_buffer_chunks(const struct tuccl_staged *staged, uint32_t rank,
                                    uint32_t buffer) {
    const struct tuccl_staged_header *header = staged->header;
    if (buffer == TUCCL_BUFFER_SCRATCH)
        return staged->ranks[rank].scratch_chunks;
    bool input = buffer == TUCCL_BUFFER_INPUT;
    if (header->operation == (input ? ALL_GATHER : REDUCE_SCATTER))
        return header->chunks;
    if (header->operation == (input ? BROADCAST : REDUCE) && rank != header->root)
        return 0;
    return header->chunks * (is_divided(header->operation) ? header->ranks : 1);
}

static bool chunks_are_sound(const struct tuccl_staged_header *header) {
    uint64_t parts = is_divided(header->operation) ? header->ranks : 1;
    return header->chunks >= 1 && header->chunks <= TUCCL_STAGED_MOST_CHUNKS &&
           header->chunks * parts <= TUCCL_STAGED_MOST_CHUNKS;
}

static bool flags_are_sound(const struct tuccl_staged_header *header) {
    uint32_t known = TUCCL_PROGRAM_RUNS_IN_PLACE | TUCCL_PROGRAM_AVERAGES;
    bool averages = (header->flags & TUCCL_PROGRAM_AVERAGES) != 0;
    return (header->flags & ~known) == 0 &&
           runs_in_place(header) == (header->operation != ALLTOALL) &&
           (!averages || reduces(header->operation));
}

static bool header_is_sound(const struct tuccl_staged_header *header) {
    bool rooted = header->operation == BROADCAST || header->operation == REDUCE;
    return header->operation < OPERATIONS && header->pattern == 0 && header->zero == 0 &&
           header->zeros[0] == 0 && header->zeros[1] == 0 && header->nodes >= 2 &&
           header->nodes <= TUCCL_STAGED_MOST_NODES && header->ranks >= header->nodes &&
           header->ranks <= header->nodes * TUCCL_PROGRAM_MOST_RANKS &&
           header->root < (rooted ? header->ranks : 1) && header->rounds >= 1 &&
           header->rounds <= TUCCL_STAGED_MOST_ROUNDS && flags_are_sound(header) &&
           chunks_are_sound(header);
}

void tuccl_staged_place(const void *data, struct tuccl_staged *staged) {
    staged->header = data;
    staged->ranks = (const void *)(staged->header + 1);
    staged->items = (const void *)(staged->ranks + staged->header->ranks);
    staged->statements = (const void *)(staged->items + tuccl_staged_items(staged->header));
}

static bool size_is_sound(const struct tuccl_staged_header *header, size_t bytes) {
    uint64_t size = sizeof *header + header->ranks * sizeof(struct tuccl_staged_rank) +
                    tuccl_staged_items(header) * sizeof(struct tuccl_staged_item) +
                    header->statement_count * sizeof(struct tuccl_statement);
    return size == bytes;
}

static bool ranks_are_sound(const struct tuccl_staged *staged) {
    const struct tuccl_staged_header *header = staged->header;
    uint32_t node = 0, size = 0, scratch = 0;
    for (uint32_t i = 0; i < header->ranks; i++) {
        const struct tuccl_staged_rank *rank = &staged->ranks[i];
        if (size > 0 && rank->node == node + 1) {
            node++;
            size = 0;
        }
        if (rank->node != node || ++size > TUCCL_PROGRAM_MOST_RANKS ||
            rank->scratch_chunks > TUCCL_STAGED_MOST_CHUNKS)
            return false;
        scratch = rank->scratch_chunks > scratch ? rank->scratch_chunks : scratch;
    }
    return node + 1 == header->nodes && scratch == header->most_scratch_chunks;
}

static bool items_are_sound(const struct tuccl_staged *staged) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < tuccl_staged_items(staged->header); i++) {
        const struct tuccl_staged_item *item = &staged->items[i];
        if (item->first_statement != next ||
            item->statements > staged->header->statement_count - next)
            return false;
        next += item->statements;
    }
    return next == staged->header->statement_count;
}

static bool lies_within(const struct tuccl_staged *staged, uint32_t rank, uint32_t buffer,
                        uint32_t offset, uint32_t count) {
    uint32_t chunks = tuccl_staged_buffer_chunks(staged, rank, buffer);
    return offset <= chunks && count <= chunks - offset;
}

static bool operand_is_sound(const struct tuccl_staged *staged,
                             const struct tuccl_statement *statement) {
    bool completes = (statement->flags & TUCCL_STATEMENT_COMPLETES) != 0;
    if ((statement->flags & TUCCL_STATEMENT_ADDS) == 0)
        return !completes && statement->operand_buffer == 0 && statement->operand == 0;
    bool on_target = statement->operand_buffer == statement->target_buffer &&
                     statement->operand == statement->target;
    return reduces(staged->header->operation) && statement->operand_buffer < TUCCL_BUFFERS &&
           (statement->source_rank != statement->target_rank || on_target) &&
           lies_within(staged, statement->target_rank, statement->operand_buffer,
                       statement->operand, statement->chunks);
}

static bool statement_is_sound(const struct tuccl_staged *staged, bool is_round,
                               const struct tuccl_statement *statement) {
    uint32_t known = TUCCL_STATEMENT_ADDS | TUCCL_STATEMENT_COMPLETES;
    uint32_t source = statement->source_rank, target = statement->target_rank;
    if ((statement->flags & ~known) != 0 || source >= staged->header->ranks ||
        target >= staged->header->ranks || statement->source_buffer >= TUCCL_BUFFERS ||
        statement->target_buffer >= TUCCL_BUFFERS || statement->chunks < 1)
        return false;
    bool crosses = staged->ranks[source].node != staged->ranks[target].node;
    /* The caller's input must not change. */
    return crosses == is_round && !(is_round && (statement->flags & TUCCL_STATEMENT_ADDS) != 0) &&
           statement->target_buffer != TUCCL_BUFFER_INPUT && operand_is_sound(staged, statement) &&
           lies_within(staged, source, statement->source_buffer, statement->source,
                       statement->chunks) &&
           lies_within(staged, target, statement->target_buffer, statement->target,
                       statement->chunks);
}

static bool statements_are_sound(const struct tuccl_staged *staged) {
    bool completes = false;
    uint64_t moved = 0;
    for (uint32_t i = 0; i < tuccl_staged_items(staged->header); i++)
        for (uint32_t j = 0; j < staged->items[i].statements; j++) {
            const struct tuccl_statement *statement =
                &staged->statements[staged->items[i].first_statement + j];
            if (!statement_is_sound(staged, i % 2 == 1, statement))
                return false;
            completes |= (statement->flags & TUCCL_STATEMENT_COMPLETES) != 0;
            moved += statement->chunks;
        }
    /* What averages divides somewhere, and nothing else does. */
    return moved <= TUCCL_STAGED_MOST_MOVED &&
           completes == ((staged->header->flags & TUCCL_PROGRAM_AVERAGES) != 0);
}

/* What a message reads or writes in a round. */
struct use {
    uint64_t place; /* Rank, memory and first chunk, in this order of significance. */
    uint64_t end;
    bool is_written;
};

/* In place, input and output are one memory; chunks are those of the larger buffer. */
static struct use use_of(const struct tuccl_staged *staged, uint32_t rank, uint32_t buffer,
                         uint32_t offset, const struct tuccl_statement *statement) {
    const struct tuccl_staged_header *header = staged->header;
    uint64_t memory = buffer, first = offset;
    if (buffer != TUCCL_BUFFER_SCRATCH && runs_in_place(header)) {
        bool input = buffer == TUCCL_BUFFER_INPUT;
        memory = 0;
        if (header->operation == (input ? ALL_GATHER : REDUCE_SCATTER))
            first += (uint64_t)rank * header->chunks;
    }
    uint64_t place = ((uint64_t)rank * TUCCL_BUFFERS + memory) << 32 | first;
    return (struct use){place, place + statement->chunks, false};
}

static int compare(const void *left, const void *right) {
    uint64_t first = ((const struct use *)left)->place;
    uint64_t second = ((const struct use *)right)->place;
    return (first > second) - (first < second);
}

/* Returns whether nothing that is written is read or written otherwise. */
static bool writes_are_apart(struct use *uses, size_t count) {
    uint64_t end = 0, written_end = 0;
    qsort(uses, count, sizeof *uses, compare);
    for (size_t i = 0; i < count; i++) {
        if (uses[i].place < (uses[i].is_written ? end : written_end))
            return false;
        end = uses[i].end > end ? uses[i].end : end;
        if (uses[i].is_written)
            written_end = uses[i].end;
    }
    return true;
}

static bool round_is_sound(const struct tuccl_staged *staged, const struct tuccl_staged_item *item,
                           struct use *uses) {
    for (uint32_t i = 0; i < item->statements; i++) {
        const struct tuccl_statement *statement = &staged->statements[item->first_statement + i];
        uses[2 * i] = use_of(staged, statement->source_rank, statement->source_buffer,
                             statement->source, statement);
        uses[2 * i + 1] = use_of(staged, statement->target_rank, statement->target_buffer,
                                 statement->target, statement);
        uses[2 * i + 1].is_written = true;
    }
    return writes_are_apart(uses, 2 * (size_t)item->statements);
}

static bool rounds_are_sound(const struct tuccl_staged *staged) {
    struct use *uses = calloc(2 * (size_t)staged->header->statement_count + 1, sizeof *uses);
    bool sound = uses != NULL;
    for (uint32_t i = 1; sound && i < tuccl_staged_items(staged->header); i += 2)
        sound = round_is_sound(staged, &staged->items[i], uses);
    free(uses);
    return sound;
}

bool tuccl_staged_check(const void *data, size_t bytes, struct tuccl_staged *staged, char *why,
                        size_t why_bytes) {
    const struct tuccl_staged_header *header = data;
    memset(staged, 0, sizeof *staged);
    if (!tuccl_program_is_sealed(data, bytes, TUCCL_STAGED_VERSION, why, why_bytes))
        return false;
    if (!header_is_sound(header) || !size_is_sound(header, bytes))
        return refuse(why, why_bytes, "contradicts itself in its header");
    tuccl_staged_place(data, staged);
    if (!ranks_are_sound(staged))
        return refuse(why, why_bytes, "contradicts itself in its ranks");
    if (!items_are_sound(staged) || !statements_are_sound(staged))
        return refuse(why, why_bytes, "contradicts itself in its statements");
    if (!rounds_are_sound(staged))
        return refuse(why, why_bytes, "receives over what a round uses");
    return true;
}
