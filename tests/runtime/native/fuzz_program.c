/* Mutated programs with a right sum: whatever the loader accepts stays within its bounds, seen here
 * by looking at every record again in another way.
 *
 *   fuzz_program PROGRAM COUNT SEED     one compiled program
 *   fuzz_program SECTION COUNT SEED s   a bundle's section of programs; sums are left as they are
 *
 * Steps must end in another order, too, and are rearranged as the executor does it. Phases touch
 * the first and last chunk of every operand in memory of exactly the buffers' size, and count who
 * writes and who reads each chunk. No input may take more than a few seconds or tens of megabytes.
 * Crashes, reads and writes outside the buffers and undefined behaviour are for the sanitizers to
 * find. */
#include "harness.h"
#include "mutation.h"
#include "program.h"
#include "rearrange.h"

#include <stdlib.h>
#include <string.h>

static void look_at_step(const struct tuccl_program *program, uint32_t rank,
                         const struct tuccl_program_threadblock *block,
                         const struct tuccl_program_step *step) {
    uint64_t chunks = (uint64_t)program->header->chunks * program->header->ranks;
    uint64_t scratch = program->ranks[rank].scratch_chunks;
    CHECK(step->type <= TUCCL_STEP_NOP && step->count >= 1);
    CHECK(step->type == TUCCL_STEP_R || step->type == TUCCL_STEP_RCS ||
          step->type == TUCCL_STEP_NOP ||
          (uint64_t)step->source + step->count <=
              (step->source_buffer == TUCCL_BUFFER_SCRATCH ? scratch : chunks));
    CHECK(step->type == TUCCL_STEP_S || step->type == TUCCL_STEP_RRS ||
          step->type == TUCCL_STEP_NOP ||
          (step->destination_buffer != TUCCL_BUFFER_INPUT &&
           (uint64_t)step->destination + step->count <=
               (step->destination_buffer == TUCCL_BUFFER_SCRATCH ? scratch : chunks)));
    if (tuccl_step_sends(step->type)) {
        CHECK(block->send_peer >= 0 && block->send_peer < (int)program->header->ranks);
        CHECK(block->send_connection < program->ranks[block->send_peer].connections);
        CHECK(step->count <= program->header->largest_message);
    }
    if (tuccl_step_receives(step->type))
        CHECK(block->receive_connection < program->ranks[rank].connections);
    if (step->awaited_threadblock >= 0) {
        CHECK((uint32_t)step->awaited_threadblock < program->ranks[rank].threadblocks);
        const struct tuccl_program_threadblock *other =
            &program->threadblocks[program->ranks[rank].first_threadblock +
                                   (uint32_t)step->awaited_threadblock];
        CHECK(step->awaited_step < other->steps);
        CHECK(program->steps[other->first_step + step->awaited_step].flags &
              TUCCL_STEP_HAS_DEPENDENT);
    }
}

/* The last rank first, one step of each threadblock at a time. */
static void run_backwards(const struct tuccl_program *program) {
    uint32_t blocks = program->header->threadblock_count;
    uint32_t *at = calloc(blocks + 1, sizeof *at), *sent = calloc(blocks + 1, sizeof *sent),
             *received = calloc(blocks + 1, sizeof *received), left = program->header->step_count;
    CHECK(at != NULL && sent != NULL && received != NULL);
    for (uint32_t before = left + 1; left < before;) {
        before = left;
        for (uint32_t rank = program->header->ranks; rank-- > 0;) {
            uint32_t first = program->ranks[rank].first_threadblock;
            for (uint32_t i = program->ranks[rank].threadblocks; i-- > 0;) {
                const struct tuccl_program_threadblock *block = &program->threadblocks[first + i];
                const struct tuccl_program_step *step =
                    &program->steps[block->first_step + at[first + i]];
                if (at[first + i] == block->steps ||
                    (step->awaited_threadblock >= 0 &&
                     at[first + (uint32_t)step->awaited_threadblock] <= step->awaited_step))
                    continue;
                uint32_t in = first + block->receive_connection, out = 0;
                bool takes = tuccl_step_receives(step->type), gives = tuccl_step_sends(step->type);
                if (gives)
                    out =
                        program->ranks[block->send_peer].first_threadblock + block->send_connection;
                if ((takes && received[in] == sent[in]) ||
                    (gives && sent[out] - received[out] == TUCCL_PROGRAM_SLOTS))
                    continue;
                if (takes)
                    received[in]++;
                if (gives)
                    sent[out]++;
                at[first + i]++;
                left--;
            }
        }
    }
    CHECK(left == 0);
    free(at);
    free(sent);
    free(received);
}

static void look_at_steps(const struct tuccl_program *program) {
    CHECK(program->header->ranks >= 2 && program->header->ranks <= 32);
    CHECK(program->header->nodes == 1 && program->header->phase_count == 1);
    for (uint32_t rank = 0; rank < program->header->ranks; rank++) {
        const struct tuccl_program_rank *record = &program->ranks[rank];
        CHECK(record->connections <= program->header->most_connections);
        CHECK(record->threadblocks <= program->header->most_threadblocks);
        CHECK(record->scratch_chunks <= program->header->most_scratch_chunks);
        for (uint32_t i = 0; i < record->threadblocks; i++) {
            const struct tuccl_program_threadblock *block =
                &program->threadblocks[record->first_threadblock + i];
            CHECK(block->steps <= program->header->longest_threadblock);
            for (uint32_t k = 0; k < block->steps; k++)
                look_at_step(program, rank, block, &program->steps[block->first_step + k]);
        }
    }
    run_backwards(program);
    (void)rearrange(program);
}

/* The buffers of a rank, one byte a chunk; NULL where the caller may pass a null pointer. */
struct memory {
    unsigned char *buffers[TUCCL_BUFFERS];
    uint32_t sizes[TUCCL_BUFFERS];
};

/* The chunks of a buffer: as documented, not as the loader computes them. */
static uint32_t chunks_of(const struct tuccl_program_header *header, uint32_t rank, bool input) {
    uint32_t parts = header->chunks * header->ranks;
    switch (header->operation) {
    case TUCCL_ALL_REDUCE:
        return header->chunks;
    case TUCCL_BROADCAST:
        return input && rank != header->root ? 0 : header->chunks;
    case TUCCL_REDUCE:
        return !input && rank != header->root ? 0 : header->chunks;
    case TUCCL_ALL_GATHER:
        return input ? header->chunks : parts;
    case TUCCL_REDUCE_SCATTER:
        return input ? parts : header->chunks;
    default:
        return parts;
    }
}

static struct memory *memory_of(const struct tuccl_program *program) {
    uint32_t ranks = tuccl_program_is_uniform(program->header) ? 1 : program->header->ranks;
    struct memory *memory = calloc(ranks, sizeof *memory);
    CHECK(memory != NULL);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct memory *own = &memory[rank];
        own->sizes[TUCCL_BUFFER_INPUT] = chunks_of(program->header, rank, true);
        own->sizes[TUCCL_BUFFER_OUTPUT] = chunks_of(program->header, rank, false);
        own->sizes[TUCCL_BUFFER_SCRATCH] = program->ranks[rank].scratch_chunks;
        for (uint32_t i = 0; i < TUCCL_BUFFERS; i++)
            if (own->sizes[i] > 0) {
                own->buffers[i] = calloc(own->sizes[i], 1);
                CHECK(own->buffers[i] != NULL);
            }
    }
    return memory;
}

static void free_memory(struct memory *memory, uint32_t ranks) {
    for (uint32_t rank = 0; rank < ranks; rank++)
        for (uint32_t i = 0; i < TUCCL_BUFFERS; i++)
            free(memory[rank].buffers[i]);
    free(memory);
}

/* The ranks whose blocks an operand holds: as documented, not as the loader computes them. */
static uint32_t blocks_of(const struct tuccl_program_header *header,
                          const struct tuccl_phase *phase, bool source) {
    if (phase->kind == TUCCL_PHASE_SUM)
        return source ? phase->repeats : 1;
    uint32_t group =
        phase->kind == TUCCL_PHASE_LOCAL ? header->ranks / header->nodes : header->nodes;
    if (phase->operation == TUCCL_ALLTOALL)
        return group;
    return phase->operation == (source ? TUCCL_REDUCE_SCATTER : TUCCL_ALL_GATHER) ? group : 1;
}

static void look_at_phase(const struct tuccl_program *program, const struct tuccl_phase *phase,
                          const struct memory *memory) {
    CHECK(phase->kind >= TUCCL_PHASE_LOCAL && phase->kind <= TUCCL_PHASE_SUM);
    CHECK(phase->source_buffer < TUCCL_BUFFERS);
    CHECK(phase->target_buffer == TUCCL_BUFFER_OUTPUT ||
          phase->target_buffer == TUCCL_BUFFER_SCRATCH);
    CHECK(phase->kind != TUCCL_PHASE_LOCAL || program->header->ranks / program->header->nodes > 1);
    CHECK((phase->pattern != 0) == (phase->kind == TUCCL_PHASE_LOCAL));
    CHECK(phase->rail_algorithm <= 7 && phase->rail_protocol <= 2 && phase->rail_nchannels <= 64);
    CHECK(phase->rail_algorithm != 0 || (phase->rail_protocol | phase->rail_nchannels) == 0);
    CHECK(phase->rail_algorithm == 0 ||
          (phase->kind == TUCCL_PHASE_RAIL && phase->operation != TUCCL_ALLTOALL));
    uint32_t calls = phase->kind == TUCCL_PHASE_SUM ? 1 : phase->repeats;
    uint64_t read = (uint64_t)blocks_of(program->header, phase, true) * phase->chunks;
    uint64_t written = (uint64_t)blocks_of(program->header, phase, false) * phase->chunks;
    unsigned char *source = memory->buffers[phase->source_buffer];
    unsigned char *target = memory->buffers[phase->target_buffer];
    uint32_t size = memory->sizes[phase->target_buffer];
    CHECK(calls >= 1 && read >= 1 && written >= 1 && written <= size);
    /* Number of the call that writes a chunk, from 1; chunks written before each chunk. */
    uint32_t *writer = calloc((size_t)size + 1, sizeof *writer);
    uint32_t *before = calloc((size_t)size + 1, sizeof *before);
    CHECK(writer != NULL && before != NULL);
    for (uint32_t call = 0; call < calls; call++) {
        uint64_t first = phase->target + (uint64_t)call * phase->target_stride;
        for (uint64_t chunk = first; chunk < first + written; chunk++) {
            target[chunk]++;
            CHECK(writer[chunk] == 0);
            writer[chunk] = call + 1;
        }
    }
    for (uint32_t chunk = 0; chunk < size; chunk++)
        before[chunk + 1] = before[chunk] + (writer[chunk] != 0);
    bool in_place = phase->kind != TUCCL_PHASE_SUM && phase->operation == TUCCL_ALL_REDUCE;
    for (uint32_t call = 0; call < calls; call++) {
        uint64_t first = phase->source + (uint64_t)call * phase->source_stride;
        uint64_t end = first + read;
        source[first]++;
        source[end - 1]++;
        if (source != target || before[end] == before[first])
            continue;
        CHECK(in_place && before[end] - before[first] == read);
        CHECK(writer[first] == call + 1 && writer[end - 1] == call + 1);
    }
    free(writer);
    free(before);
}

static void touch(const struct memory *memory, uint32_t buffer, uint32_t first, uint32_t chunks) {
    CHECK(chunks >= 1 && buffer < TUCCL_BUFFERS && memory->buffers[buffer] != NULL);
    memory->buffers[buffer][first]++;
    memory->buffers[buffer][first + chunks - 1]++;
}

static bool crosses(const struct tuccl_program *program, const struct tuccl_statement *statement) {
    return program->ranks[statement->source_rank].node !=
           program->ranks[statement->target_rank].node;
}

static void look_at_statement(const struct tuccl_program *program, struct memory *memory,
                              const struct tuccl_statement *statement, bool is_round) {
    const struct tuccl_program_header *header = program->header;
    CHECK(statement->source_rank < header->ranks && statement->target_rank < header->ranks);
    CHECK(is_round || !crosses(program, statement));
    CHECK(statement->target_buffer != TUCCL_BUFFER_INPUT && statement->flags <= 3);
    touch(&memory[statement->source_rank], statement->source_buffer, statement->source,
          statement->chunks);
    touch(&memory[statement->target_rank], statement->target_buffer, statement->target,
          statement->chunks);
    if ((statement->flags & TUCCL_STATEMENT_ADDS) == 0) {
        CHECK((statement->flags & TUCCL_STATEMENT_COMPLETES) == 0);
        return;
    }
    CHECK(!crosses(program, statement) &&
          (header->operation == TUCCL_REDUCE || header->operation == TUCCL_REDUCE_SCATTER ||
           header->operation == TUCCL_ALL_REDUCE));
    touch(&memory[statement->target_rank], statement->operand_buffer, statement->operand,
          statement->chunks);
}

/* The place of a chunk in one memory for all buffers of a rank. */
static uint64_t place_of(const struct tuccl_program *program, uint32_t rank, uint32_t buffer,
                         uint32_t chunk) {
    const struct tuccl_program_header *header = program->header;
    const uint64_t room = TUCCL_PROGRAM_MOST_CHUNKS;
    bool shared = header->operation != TUCCL_ALLTOALL && buffer != TUCCL_BUFFER_SCRATCH;
    bool part = (buffer == TUCCL_BUFFER_INPUT && header->operation == TUCCL_ALL_GATHER) ||
                (buffer == TUCCL_BUFFER_OUTPUT && header->operation == TUCCL_REDUCE_SCATTER);
    uint64_t shift = shared && part ? (uint64_t)rank * header->chunks : 0;
    return (shared ? 0 : buffer) * room + shift + chunk;
}

/* Checks, chunk by chunk on each rank, that nothing received is used otherwise, and nothing sent
 * written beside. */
static void look_at_round(const struct tuccl_program *program, const struct tuccl_phase *phase) {
    enum { RECEIVED = 1, SENT = 2 };
    size_t room = (size_t)TUCCL_BUFFERS * TUCCL_PROGRAM_MOST_CHUNKS;
    unsigned char *used = calloc(room, 1);
    CHECK(used != NULL);
    for (uint32_t rank = 0; rank < program->header->ranks; rank++)
        for (uint32_t pass = 0; pass < 4; pass++)
            for (uint32_t i = 0; i < phase->statements; i++) {
                const struct tuccl_statement *s = &program->statements[phase->first_statement + i];
                for (uint32_t chunk = 0; chunk < s->chunks; chunk++) {
                    uint64_t to = place_of(program, rank, s->target_buffer, s->target + chunk);
                    uint64_t from = place_of(program, rank, s->source_buffer, s->source + chunk);
                    uint64_t own = place_of(program, rank, s->operand_buffer, s->operand + chunk);
                    bool sends = s->source_rank == rank, receives = s->target_rank == rank;
                    bool message = crosses(program, s), adds = (s->flags & 1) != 0;
                    bool stays = sends && receives && from == to && !adds;
                    if (message && receives && pass == 0) {
                        CHECK(used[to] == 0);
                        used[to] = RECEIVED;
                    }
                    if (message && sends && pass == 1) {
                        CHECK(used[from] != RECEIVED);
                        used[from] = SENT;
                    }
                    if (!message && !stays && pass == 2) {
                        CHECK(!receives || used[to] == 0);
                        CHECK(!sends || used[from] != RECEIVED);
                        CHECK(!receives || !adds || used[own] != RECEIVED);
                    }
                    if (message && pass == 3)
                        used[receives ? to : from] = 0;
                }
            }
    free(used);
}

static void look_at_nodes(const struct tuccl_program *program) {
    const struct tuccl_program_header *header = program->header;
    CHECK(header->nodes >= 2 && header->nodes <= 4096);
    CHECK(header->phase_count >= 1 && header->phase_count <= 129);
    CHECK(header->lanes >= 1 && header->lanes <= 8);
    if (tuccl_program_is_uniform(header)) {
        CHECK(header->ranks % header->nodes == 0 && header->ranks / header->nodes <= 32);
        CHECK(header->operation == TUCCL_ALL_REDUCE || header->chunks == 1);
        return;
    }
    for (uint32_t rank = 0, size = 0; rank < header->ranks; rank++) {
        bool begins = rank == 0 || program->ranks[rank].node != program->ranks[rank - 1].node;
        size = begins ? 1 : size + 1;
        CHECK(size <= 8 && program->ranks[rank].node < header->nodes);
    }
}

static void look_at_phases(const struct tuccl_program *program) {
    bool uniform = tuccl_program_is_uniform(program->header);
    struct memory *memory = memory_of(program);
    look_at_nodes(program);
    for (uint32_t i = 0; i < program->header->phase_count; i++) {
        const struct tuccl_phase *phase = &program->phases[i];
        bool is_round = phase->kind == TUCCL_PHASE_ROUND;
        if (uniform) {
            look_at_phase(program, phase, memory);
            continue;
        }
        CHECK(phase->kind == (i % 2 == 1 ? TUCCL_PHASE_ROUND : TUCCL_PHASE_STAGE));
        for (uint32_t j = 0; j < phase->statements; j++)
            look_at_statement(program, memory, &program->statements[phase->first_statement + j],
                              is_round);
        if (is_round)
            look_at_round(program, phase);
    }
    free_memory(memory, uniform ? 1 : program->header->ranks);
}

static void look_at(const struct tuccl_program *program) {
    if (program->phases[0].kind == TUCCL_PHASE_STEPS)
        look_at_steps(program);
    else
        look_at_phases(program);
}

static bool look_at_section(const unsigned char *data, size_t bytes) {
    char why[128];
    if (!tuccl_programs_check(data, bytes, why, sizeof why))
        return false;
    for (uint32_t k = 0; k < tuccl_programs_count(data); k++) {
        struct tuccl_program program;
        if (tuccl_programs_at(data, k, &program))
            look_at(&program);
    }
    return true;
}

static bool look_at_program(const unsigned char *data, size_t bytes) {
    char why[128];
    struct tuccl_program program;
    if (!tuccl_program_check(data, bytes, &program, why, sizeof why))
        return false;
    look_at(&program);
    return true;
}

int main(int count_of_arguments, char **arguments) {
    return fuzz(count_of_arguments, arguments, look_at_section, look_at_program);
}
