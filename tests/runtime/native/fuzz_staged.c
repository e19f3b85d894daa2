/* Mutated staged programs with a right sum: whatever the loader accepts stays within its buffers,
 * seen here by touching the first and last chunk of every operand in memory of exactly the buffers'
 * size, and by counting who writes and who reads each chunk in a round.
 *
 *   fuzz_staged PROGRAM COUNT SEED     one staged program
 *   fuzz_staged SECTION COUNT SEED s   a bundle's section of programs; sums are left as they are
 *
 * Reads and writes outside the buffers are for the sanitizers to find. */
#include "harness.h"
#include "mutation.h"
#include "program.h"
#include "staged.h"

#include <stdlib.h>

enum { BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, ALLTOALL };

/* The buffers of a rank, one byte a chunk; NULL where the caller may pass a null pointer. */
struct memory {
    unsigned char *buffers[TUCCL_BUFFERS];
    uint32_t sizes[TUCCL_BUFFERS];
};

/* The chunks of a buffer: as documented, not as the loader computes them. */
static uint32_t chunks_of(const struct tuccl_staged_header *header, uint32_t rank, bool input) {
    uint32_t parts = header->chunks * header->ranks;
    switch (header->operation) {
    case ALL_REDUCE:
        return header->chunks;
    case BROADCAST:
        return input && rank != header->root ? 0 : header->chunks;
    case REDUCE:
        return !input && rank != header->root ? 0 : header->chunks;
    case ALL_GATHER:
        return input ? header->chunks : parts;
    case REDUCE_SCATTER:
        return input ? parts : header->chunks;
    default:
        return parts;
    }
}

static struct memory *memory_of(const struct tuccl_staged *staged) {
    struct memory *memory = calloc(staged->header->ranks, sizeof *memory);
    CHECK(memory != NULL);
    for (uint32_t rank = 0; rank < staged->header->ranks; rank++) {
        struct memory *own = &memory[rank];
        own->sizes[TUCCL_BUFFER_INPUT] = chunks_of(staged->header, rank, true);
        own->sizes[TUCCL_BUFFER_OUTPUT] = chunks_of(staged->header, rank, false);
        own->sizes[TUCCL_BUFFER_SCRATCH] = staged->ranks[rank].scratch_chunks;
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

static void touch(const struct memory *memory, uint32_t buffer, uint32_t first, uint32_t chunks) {
    CHECK(chunks >= 1 && buffer < TUCCL_BUFFERS && memory->buffers[buffer] != NULL);
    memory->buffers[buffer][first]++;
    memory->buffers[buffer][first + chunks - 1]++;
}

static void look_at_statement(const struct tuccl_staged *staged, struct memory *memory,
                              const struct tuccl_statement *statement, bool is_round) {
    const struct tuccl_staged_header *header = staged->header;
    CHECK(statement->source_rank < header->ranks && statement->target_rank < header->ranks);
    CHECK((staged->ranks[statement->source_rank].node !=
           staged->ranks[statement->target_rank].node) == is_round);
    CHECK(statement->target_buffer != TUCCL_BUFFER_INPUT && statement->flags <= 3);
    touch(&memory[statement->source_rank], statement->source_buffer, statement->source,
          statement->chunks);
    touch(&memory[statement->target_rank], statement->target_buffer, statement->target,
          statement->chunks);
    if ((statement->flags & TUCCL_STATEMENT_ADDS) == 0) {
        CHECK((statement->flags & TUCCL_STATEMENT_COMPLETES) == 0);
        return;
    }
    CHECK(!is_round && (header->operation == REDUCE || header->operation == REDUCE_SCATTER ||
                        header->operation == ALL_REDUCE));
    touch(&memory[statement->target_rank], statement->operand_buffer, statement->operand,
          statement->chunks);
}

/* The place of a chunk in one memory for all buffers of a rank. */
static uint64_t place_of(const struct tuccl_staged *staged, uint32_t rank, uint32_t buffer,
                         uint32_t chunk) {
    const struct tuccl_staged_header *header = staged->header;
    const uint64_t room = TUCCL_STAGED_MOST_CHUNKS;
    bool shared = header->operation != ALLTOALL && buffer != TUCCL_BUFFER_SCRATCH;
    bool part = (buffer == TUCCL_BUFFER_INPUT && header->operation == ALL_GATHER) ||
                (buffer == TUCCL_BUFFER_OUTPUT && header->operation == REDUCE_SCATTER);
    uint64_t shift = shared && part ? (uint64_t)rank * header->chunks : 0;
    return (shared ? 0 : buffer) * room + shift + chunk;
}

/* Checks, chunk by chunk on each rank, that nothing received is used otherwise. */
static void look_at_round(const struct tuccl_staged *staged, const struct tuccl_staged_item *item) {
    size_t room = (size_t)TUCCL_BUFFERS * TUCCL_STAGED_MOST_CHUNKS;
    unsigned char *used = calloc(room, 1);
    CHECK(used != NULL);
    for (uint32_t rank = 0; rank < staged->header->ranks; rank++) {
        for (uint32_t pass = 0; pass < 3; pass++)
            for (uint32_t i = 0; i < item->statements; i++) {
                const struct tuccl_statement *s = &staged->statements[item->first_statement + i];
                for (uint32_t chunk = 0; chunk < s->chunks; chunk++) {
                    uint64_t to = place_of(staged, rank, s->target_buffer, s->target + chunk);
                    uint64_t from = place_of(staged, rank, s->source_buffer, s->source + chunk);
                    if (s->target_rank == rank && pass == 0)
                        CHECK(used[to]++ == 0);
                    if (s->source_rank == rank && pass == 1)
                        CHECK(used[from] == 0);
                    if (s->target_rank == rank && pass == 2)
                        used[to] = 0;
                }
            }
    }
    free(used);
}

static void look_at(const struct tuccl_staged *staged) {
    const struct tuccl_staged_header *header = staged->header;
    uint32_t items = tuccl_staged_items(header), size = 0;
    CHECK(header->rounds >= 1 && header->rounds <= 64 && header->nodes >= 2);
    for (uint32_t rank = 0; rank < header->ranks; rank++) {
        bool begins = rank == 0 || staged->ranks[rank].node != staged->ranks[rank - 1].node;
        size = begins ? 1 : size + 1;
        CHECK(size <= 8 && staged->ranks[rank].node < header->nodes);
    }
    struct memory *memory = memory_of(staged);
    for (uint32_t i = 0; i < items; i++) {
        for (uint32_t j = 0; j < staged->items[i].statements; j++)
            look_at_statement(staged, memory,
                              &staged->statements[staged->items[i].first_statement + j],
                              i % 2 == 1);
        if (i % 2 == 1)
            look_at_round(staged, &staged->items[i]);
    }
    free_memory(memory, header->ranks);
}

static bool look_at_section(const unsigned char *data, size_t bytes) {
    char why[128];
    if (!tuccl_programs_check(data, bytes, why, sizeof why))
        return false;
    for (uint32_t k = 0; k < tuccl_programs_count(data); k++) {
        struct tuccl_program program;
        struct tuccl_staged staged;
        bool has_stages = tuccl_staged_at(data, k, &staged);
        CHECK(!has_stages || !tuccl_programs_at(data, k, &program));
        if (has_stages)
            look_at(&staged);
    }
    return true;
}

static bool look_at_program(const unsigned char *data, size_t bytes) {
    char why[128];
    struct tuccl_staged staged;
    if (!tuccl_staged_check(data, bytes, &staged, why, sizeof why))
        return false;
    look_at(&staged);
    return true;
}

int main(int count_of_arguments, char **arguments) {
    return fuzz(count_of_arguments, arguments, sizeof(struct tuccl_statement), look_at_section,
                look_at_program);
}
