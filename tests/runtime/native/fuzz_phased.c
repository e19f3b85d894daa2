/* Mutated phased programs with a right sum: whatever the loader accepts stays within its buffers,
 * seen here by touching the first and last chunk of every operand in memory of exactly the buffers'
 * size, and by counting who writes and who reads each chunk.
 *
 *   fuzz_phased PROGRAM COUNT SEED     one phased program
 *   fuzz_phased SECTION COUNT SEED s   a bundle's section of programs; sums are left as they are
 *
 * Reads and writes outside the buffers are for the sanitizers to find. */
#include "harness.h"
#include "mutation.h"
#include "phased.h"
#include "program.h"

#include <stdlib.h>
#include <string.h>

enum { ALL_GATHER = 2, REDUCE_SCATTER, ALL_REDUCE, ALLTOALL };

/* A buffer of a rank, one byte a chunk. */
struct memory {
    unsigned char *chunks;
    uint32_t size;
};

static struct memory memory_of(uint32_t size) {
    unsigned char *chunks = calloc((size_t)size + (size == 0), 1);
    CHECK(chunks != NULL);
    return (struct memory){chunks, size};
}

/* The ranks whose blocks an operand holds: as documented, not as the loader computes them. */
static uint32_t blocks_of(const struct tuccl_phased_header *header, const struct tuccl_phase *phase,
                          bool source) {
    if (phase->kind == TUCCL_PHASE_SUM)
        return source ? phase->repeats : 1;
    uint32_t group = phase->kind == TUCCL_PHASE_LOCAL ? header->local_ranks : header->nodes;
    if (phase->operation == ALLTOALL)
        return group;
    return phase->operation == (source ? REDUCE_SCATTER : ALL_GATHER) ? group : 1;
}

static void look_at_phase(const struct tuccl_phased *phased, const struct tuccl_phase *phase,
                          const struct memory *buffers) {
    CHECK(phase->kind < TUCCL_PHASE_KINDS && phase->source_buffer < TUCCL_BUFFERS);
    CHECK(phase->target_buffer == TUCCL_BUFFER_OUTPUT ||
          phase->target_buffer == TUCCL_BUFFER_SCRATCH);
    CHECK(phase->kind != TUCCL_PHASE_LOCAL || phased->header->local_ranks > 1);
    CHECK((phase->pattern != 0) == (phase->kind == TUCCL_PHASE_LOCAL));
    CHECK(phase->rail_algorithm <= 7 && phase->rail_protocol <= 2 && phase->rail_nchannels <= 64);
    CHECK(phase->rail_algorithm != 0 || (phase->rail_protocol | phase->rail_nchannels) == 0);
    CHECK(phase->rail_algorithm == 0 ||
          (phase->kind == TUCCL_PHASE_RAIL && phase->operation != ALLTOALL));
    uint32_t calls = phase->kind == TUCCL_PHASE_SUM ? 1 : phase->repeats;
    uint64_t read = (uint64_t)blocks_of(phased->header, phase, true) * phase->chunks;
    uint64_t written = (uint64_t)blocks_of(phased->header, phase, false) * phase->chunks;
    const struct memory *source = &buffers[phase->source_buffer];
    const struct memory *target = &buffers[phase->target_buffer];
    CHECK(calls >= 1 && read >= 1 && written >= 1 && written <= target->size);
    /* Number of the call that writes a chunk, from 1; chunks written before each chunk. */
    uint32_t *writer = calloc((size_t)target->size + 1, sizeof *writer);
    uint32_t *before = calloc((size_t)target->size + 1, sizeof *before);
    CHECK(writer != NULL && before != NULL);
    for (uint32_t call = 0; call < calls; call++) {
        uint64_t first = phase->target + (uint64_t)call * phase->target_stride;
        for (uint64_t chunk = first; chunk < first + written; chunk++) {
            target->chunks[chunk]++;
            CHECK(writer[chunk] == 0);
            writer[chunk] = call + 1;
        }
    }
    for (uint32_t chunk = 0; chunk < target->size; chunk++)
        before[chunk + 1] = before[chunk] + (writer[chunk] != 0);
    bool in_place = phase->kind != TUCCL_PHASE_SUM && phase->operation == ALL_REDUCE;
    for (uint32_t call = 0; call < calls; call++) {
        uint64_t first = phase->source + (uint64_t)call * phase->source_stride;
        uint64_t end = first + read;
        source->chunks[first]++;
        source->chunks[end - 1]++;
        if (source != target || before[end] == before[first])
            continue;
        CHECK(in_place && before[end] - before[first] == read);
        CHECK(writer[first] == call + 1 && writer[end - 1] == call + 1);
    }
    free(writer);
    free(before);
}

static void look_at(const struct tuccl_phased *phased) {
    const struct tuccl_phased_header *header = phased->header;
    CHECK(header->nodes >= 2 && header->nodes <= 4096);
    CHECK(header->local_ranks >= 1 && header->local_ranks <= 8);
    CHECK(header->ranks == header->nodes * header->local_ranks);
    CHECK(header->phase_count >= 1 && header->phase_count <= 64);
    uint32_t divided = header->operation == ALL_REDUCE ? header->input_chunks : header->ranks;
    CHECK(header->input_chunks == (header->operation == ALL_GATHER ? 1 : divided));
    CHECK(header->output_chunks == (header->operation == REDUCE_SCATTER ? 1 : divided));
    struct memory buffers[TUCCL_BUFFERS] = {memory_of(header->input_chunks),
                                            memory_of(header->output_chunks),
                                            memory_of(header->scratch_chunks)};
    for (uint32_t i = 0; i < header->phase_count; i++)
        look_at_phase(phased, &phased->phases[i], buffers);
    for (uint32_t i = 0; i < TUCCL_BUFFERS; i++)
        free(buffers[i].chunks);
}

static bool look_at_section(const unsigned char *data, size_t bytes) {
    char why[128];
    if (!tuccl_programs_check(data, bytes, why, sizeof why))
        return false;
    for (uint32_t k = 0; k < tuccl_programs_count(data); k++) {
        struct tuccl_program program;
        struct tuccl_phased phased;
        bool has_phases = tuccl_phased_at(data, k, &phased);
        CHECK(!has_phases || !tuccl_programs_at(data, k, &program));
        if (has_phases)
            look_at(&phased);
    }
    return true;
}

static bool look_at_program(const unsigned char *data, size_t bytes) {
    char why[128];
    struct tuccl_phased phased;
    if (!tuccl_phased_check(data, bytes, &phased, why, sizeof why))
        return false;
    look_at(&phased);
    return true;
}

int main(int count_of_arguments, char **arguments) {
    return fuzz(count_of_arguments, arguments, sizeof(struct tuccl_phase), look_at_section,
                look_at_program);
}
