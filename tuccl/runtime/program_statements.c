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

static bool crosses_nodes(const struct tuccl_program *program,
                          const struct tuccl_statement *statement) {
    return program->ranks[statement->source_rank].node !=
           program->ranks[statement->target_rank].node;
}

static bool statement_is_sound(const struct tuccl_program *program, bool in_round,
                               const struct tuccl_statement *statement) {
    uint32_t known = TUCCL_STATEMENT_ADDS | TUCCL_STATEMENT_COMPLETES;
    uint32_t source = statement->source_rank, target = statement->target_rank;
    if ((statement->flags & ~known) != 0 || source >= program->header->ranks ||
        target >= program->header->ranks || statement->source_buffer >= TUCCL_BUFFERS ||
        statement->target_buffer >= TUCCL_BUFFERS || statement->chunks < 1)
        return false;
    bool adds = (statement->flags & TUCCL_STATEMENT_ADDS) != 0;
    /* The caller's input must not change. */
    return (!crosses_nodes(program, statement) || (in_round && !adds)) &&
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

/* What a round does with a chunk: its messages, and the statements beside them. */
enum { SENT, RECEIVED, READ, WRITTEN, USES };

/* Uses that exclude each use, a bit for each. */
static const unsigned EXCLUDED[USES] = {
    [SENT] = 1 << RECEIVED | 1 << WRITTEN,
    [RECEIVED] = 1 << SENT | 1 << RECEIVED | 1 << READ | 1 << WRITTEN,
    [READ] = 1 << RECEIVED,
    [WRITTEN] = 1 << SENT | 1 << RECEIVED,
};

struct use {
    uint64_t place; /* Rank, memory and first chunk, in this order of significance. */
    uint64_t end;
    unsigned what;
};

/* A round, and whether input and output are one memory: chunks are those of the larger buffer. */
struct round {
    const struct tuccl_program *program;
    const struct tuccl_phase *phase;
    bool in_place;
};

static struct use use_of(const struct round *round, uint32_t rank, uint32_t buffer, uint32_t offset,
                         uint32_t chunks) {
    const struct tuccl_program_header *header = round->program->header;
    uint64_t memory = buffer, first = offset;
    if (buffer != TUCCL_BUFFER_SCRATCH && round->in_place) {
        bool input = buffer == TUCCL_BUFFER_INPUT;
        memory = 0;
        if (input ? tuccl_input_is_part(header->operation)
                  : tuccl_output_is_part(header->operation))
            first += (uint64_t)rank * header->chunks;
    }
    uint64_t place = ((uint64_t)rank * TUCCL_BUFFERS + memory) << 32 | first;
    return (struct use){place, place + chunks, READ};
}

static int compare(const void *left, const void *right) {
    uint64_t first = ((const struct use *)left)->place;
    uint64_t second = ((const struct use *)right)->place;
    return (first > second) - (first < second);
}

static bool uses_are_apart(struct use *uses, size_t count) {
    uint64_t ends[USES] = {0};
    qsort(uses, count, sizeof *uses, compare);
    for (size_t i = 0; i < count; i++) {
        for (unsigned other = 0; other < USES; other++)
            if ((EXCLUDED[uses[i].what] >> other & 1) != 0 && uses[i].place < ends[other])
                return false;
        uint64_t *end = &ends[uses[i].what];
        *end = uses[i].end > *end ? uses[i].end : *end;
    }
    return true;
}

/* Returns how many uses a statement has. In place a chunk may be copied onto itself, which does
 * nothing. */
static size_t add_uses(const struct round *round, const struct tuccl_statement *statement,
                       struct use *uses) {
    bool crosses = crosses_nodes(round->program, statement);
    bool adds = (statement->flags & TUCCL_STATEMENT_ADDS) != 0;
    uses[0] = use_of(round, statement->source_rank, statement->source_buffer, statement->source,
                     statement->chunks);
    uses[1] = use_of(round, statement->target_rank, statement->target_buffer, statement->target,
                     statement->chunks);
    if (!adds && uses[0].place == uses[1].place)
        return 0;
    uses[0].what = crosses ? SENT : READ;
    uses[1].what = crosses ? RECEIVED : WRITTEN;
    if (!adds)
        return 2;
    uses[2] = use_of(round, statement->target_rank, statement->operand_buffer, statement->operand,
                     statement->chunks);
    return 3;
}

static bool round_is_sound(const struct round *round, struct use *uses) {
    size_t count = 0;
    for (uint32_t i = 0; i < round->phase->statements; i++)
        count += add_uses(round, &round->program->statements[round->phase->first_statement + i],
                          uses + count);
    return uses_are_apart(uses, count);
}

static bool rounds_are_sound(const struct tuccl_program *program) {
    const struct tuccl_program_header *header = program->header;
    bool runs_in_place = (header->flags & TUCCL_PROGRAM_RUNS_IN_PLACE) != 0;
    struct use *uses = calloc(3 * (size_t)header->statement_count + 1, sizeof *uses);
    bool sound = uses != NULL;
    for (uint32_t i = 0; sound && i < header->phase_count; i++) {
        const struct tuccl_phase *phase = &program->phases[i];
        if (is_round(phase))
            sound = round_is_sound(&(struct round){program, phase, false}, uses) &&
                    (!runs_in_place || round_is_sound(&(struct round){program, phase, true}, uses));
    }
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
    return rounds_are_sound(program) ? NULL : "sends or receives what a round uses otherwise";
}
