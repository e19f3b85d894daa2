/* The rules of stages and rounds; synthesizer/programs/form.py has the same ones. */
#include "program_rules.h"

#include <stdlib.h>
#include <string.h>

static bool is_round(const struct tuccl_phase *phase) {
    return phase->kind == TUCCL_PHASE_ROUND;
}

/* Stage, round, stage and so on, as long as there are rounds. */
static bool phases_are_sound(const struct tuccl_program *program) {
    const struct tuccl_program_header *header = program->header;
    uint32_t next = 0;
    for (uint32_t i = 0; i < header->phase_count; i++) {
        const struct tuccl_phase *phase = &program->phases[i];
        struct tuccl_phase expected = {.kind = i % 2 == 1 ? TUCCL_PHASE_ROUND : TUCCL_PHASE_STAGE};
        expected.first_statement = next;
        expected.statements = phase->statements;
        if (memcmp(&expected, phase, sizeof expected) != 0 ||
            phase->statements > header->statement_count - next)
            return false;
        next += phase->statements;
    }
    return next == header->statement_count && header->phase_count % 2 == 1 &&
           header->phase_count > 1;
}

static bool lies_within(const struct tuccl_program *program, uint32_t rank, uint32_t buffer,
                        uint32_t offset, uint32_t count) {
    return tuccl_lies_within(offset, count, tuccl_program_buffer_chunks(program, rank, buffer));
}

static bool operand_is_sound(const struct tuccl_program *program,
                             const struct tuccl_statement *statement) {
    bool completes = (statement->flags & TUCCL_STATEMENT_COMPLETES) != 0;
    if ((statement->flags & TUCCL_STATEMENT_ADDS) == 0)
        return !completes && statement->operand_buffer == 0 && statement->operand == 0;
    bool on_target = statement->operand_buffer == statement->target_buffer &&
                     statement->operand == statement->target;
    return tuccl_is_reduction(program->header->operation) &&
           statement->operand_buffer < TUCCL_BUFFERS &&
           (statement->source_rank != statement->target_rank || on_target) &&
           lies_within(program, statement->target_rank, statement->operand_buffer,
                       statement->operand, statement->chunks);
}

static bool statement_is_sound(const struct tuccl_program *program, bool crosses_nodes,
                               const struct tuccl_statement *statement) {
    uint32_t known = TUCCL_STATEMENT_ADDS | TUCCL_STATEMENT_COMPLETES;
    uint32_t source = statement->source_rank, target = statement->target_rank;
    if ((statement->flags & ~known) != 0 || source >= program->header->ranks ||
        target >= program->header->ranks || statement->source_buffer >= TUCCL_BUFFERS ||
        statement->target_buffer >= TUCCL_BUFFERS || statement->chunks < 1)
        return false;
    bool crosses = program->ranks[source].node != program->ranks[target].node;
    /* The caller's input must not change. */
    return crosses == crosses_nodes &&
           !(crosses_nodes && (statement->flags & TUCCL_STATEMENT_ADDS) != 0) &&
           statement->target_buffer != TUCCL_BUFFER_INPUT && operand_is_sound(program, statement) &&
           lies_within(program, source, statement->source_buffer, statement->source,
                       statement->chunks) &&
           lies_within(program, target, statement->target_buffer, statement->target,
                       statement->chunks);
}

static bool statements_are_sound(const struct tuccl_program *program) {
    bool completes = false;
    uint64_t moved = 0;
    for (uint32_t i = 0; i < program->header->phase_count; i++)
        for (uint32_t j = 0; j < program->phases[i].statements; j++) {
            const struct tuccl_statement *statement =
                &program->statements[program->phases[i].first_statement + j];
            if (!statement_is_sound(program, is_round(&program->phases[i]), statement))
                return false;
            completes |= (statement->flags & TUCCL_STATEMENT_COMPLETES) != 0;
            moved += statement->chunks;
        }
    /* What averages divides somewhere, and nothing else does. */
    return moved <= TUCCL_PROGRAM_MOST_MOVED &&
           completes == ((program->header->flags & TUCCL_PROGRAM_AVERAGES) != 0);
}

/* What a message reads or writes in a round. */
struct use {
    uint64_t place; /* Rank, memory and first chunk, in this order of significance. */
    uint64_t end;
    bool is_written;
};

/* In place, input and output are one memory; chunks are those of the larger buffer. */
static struct use use_of(const struct tuccl_program *program, uint32_t rank, uint32_t buffer,
                         uint32_t offset, const struct tuccl_statement *statement) {
    const struct tuccl_program_header *header = program->header;
    uint64_t memory = buffer, first = offset;
    if (buffer != TUCCL_BUFFER_SCRATCH && (header->flags & TUCCL_PROGRAM_RUNS_IN_PLACE) != 0) {
        bool input = buffer == TUCCL_BUFFER_INPUT;
        memory = 0;
        if (input ? tuccl_input_is_part(header->operation)
                  : tuccl_output_is_part(header->operation))
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

static bool round_is_sound(const struct tuccl_program *program, const struct tuccl_phase *phase,
                           struct use *uses) {
    for (uint32_t i = 0; i < phase->statements; i++) {
        const struct tuccl_statement *statement = &program->statements[phase->first_statement + i];
        uses[2 * i] = use_of(program, statement->source_rank, statement->source_buffer,
                             statement->source, statement);
        uses[2 * i + 1] = use_of(program, statement->target_rank, statement->target_buffer,
                                 statement->target, statement);
        uses[2 * i + 1].is_written = true;
    }
    return writes_are_apart(uses, 2 * (size_t)phase->statements);
}

static bool rounds_are_sound(const struct tuccl_program *program) {
    struct use *uses = calloc(2 * (size_t)program->header->statement_count + 1, sizeof *uses);
    bool sound = uses != NULL;
    for (uint32_t i = 0; sound && i < program->header->phase_count; i++)
        sound =
            !is_round(&program->phases[i]) || round_is_sound(program, &program->phases[i], uses);
    free(uses);
    return sound;
}

const char *tuccl_fault_of_statements(const struct tuccl_program *program) {
    const struct tuccl_program_header *header = program->header;
    bool in_place = (header->flags & TUCCL_PROGRAM_RUNS_IN_PLACE) != 0;
    if (in_place != tuccl_has_place(header->operation))
        return "contradicts itself in its header";
    if (!phases_are_sound(program))
        return "contradicts itself in its phases";
    if (!statements_are_sound(program))
        return "contradicts itself in its statements";
    return rounds_are_sound(program) ? NULL : "receives over what a round uses";
}
