/* Mutated programs with a right sum: whatever the loader accepts lies within its bounds, seen here
 * by looking at every record again in another way, and comes to its end in another order.
 *
 *   fuzz_program PROGRAM COUNT SEED     one compiled program
 *   fuzz_program SECTION COUNT SEED s   a bundle's section of programs; sums are left as they are
 *
 * What is accepted is rearranged, too, as the executor does it. No input may take more than a few
 * seconds or tens of megabytes. Crashes and undefined behaviour are for the sanitizers to find. */
#include "harness.h"
#include "mutation.h"
#include "program.h"
#include "rearrange.h"

#include <stdlib.h>
#include <string.h>

enum { STEP_BYTES = sizeof(struct tuccl_program_step) };

static void look_at_step(const struct tuccl_program *program, uint32_t rank,
                         const struct tuccl_program_threadblock *block,
                         const struct tuccl_program_step *step) {
    uint64_t chunks = program->header->chunks_per_loop;
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

static void look_at(const struct tuccl_program *program) {
    CHECK(program->header->ranks >= 2 && program->header->ranks <= 8);
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
    return fuzz(count_of_arguments, arguments, STEP_BYTES, look_at_section, look_at_program);
}
