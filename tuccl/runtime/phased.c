/* The rules of a phased program; synthesizer/programs/phase_form.py has the same ones. */
#include "phased.h"

#include "program.h"

#include <stdio.h>
#include <string.h>

/* As in executor/executor.h and the bundle. */
enum { REDUCE = 1, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, ALLTOALL };
enum { NO_PATTERN, ONE_PHASE, TWO_PHASE, DIRECT };
enum { ALGORITHMS = 7, PROTOCOLS = 3, LARGEST_NCHANNELS = 64 };

static bool refuse(char *why, size_t why_bytes, const char *reason) {
    snprintf(why, why_bytes, "%s", reason);
    return false;
}

static bool is_known(uint32_t operation) {
    return operation >= ALL_GATHER && operation <= ALLTOALL;
}

static bool reduces(uint32_t operation) {
    return operation == ALL_REDUCE || operation == REDUCE_SCATTER;
}

uint32_t tuccl_phase_group(const struct tuccl_phased_header *header,
                           const struct tuccl_phase *phase) {
    if (phase->kind == TUCCL_PHASE_LOCAL)
        return header->local_ranks;
    return phase->kind == TUCCL_PHASE_RAIL ? header->nodes : 1;
}

uint64_t tuccl_phase_source_chunks(const struct tuccl_phase *phase, uint32_t group) {
    if (phase->kind == TUCCL_PHASE_SUM)
        return (uint64_t)phase->chunks * phase->repeats;
    bool spreads = phase->operation == REDUCE_SCATTER || phase->operation == ALLTOALL;
    return (uint64_t)phase->chunks * (spreads ? group : 1);
}

uint64_t tuccl_phase_target_chunks(const struct tuccl_phase *phase, uint32_t group) {
    bool spreads = phase->operation == ALL_GATHER || phase->operation == ALLTOALL;
    return (uint64_t)phase->chunks * (spreads ? group : 1);
}

static bool buffers_are_sound(const struct tuccl_phased_header *header) {
    uint32_t input = header->input_chunks, output = header->output_chunks;
    if (input < 1 || output < 1 || input > TUCCL_PHASED_MOST_CHUNKS ||
        output > TUCCL_PHASED_MOST_CHUNKS || header->scratch_chunks > TUCCL_PHASED_MOST_CHUNKS)
        return false;
    if (header->operation == ALL_REDUCE)
        return input == output;
    return input == (header->operation == ALL_GATHER ? 1 : header->ranks) &&
           output == (header->operation == REDUCE_SCATTER ? 1 : header->ranks);
}

static bool header_is_sound(const struct tuccl_phased_header *header, size_t bytes) {
    return is_known(header->operation) && header->pattern == NO_PATTERN && header->root == 0 &&
           (header->flags & ~TUCCL_PROGRAM_RUNS_IN_PLACE) == 0 && header->nodes >= 2 &&
           header->nodes <= TUCCL_PHASED_MOST_NODES && header->local_ranks >= 1 &&
           header->local_ranks <= TUCCL_PROGRAM_MOST_RANKS &&
           header->ranks == header->nodes * header->local_ranks && buffers_are_sound(header) &&
           header->phase_count >= 1 && header->phase_count <= TUCCL_MOST_PHASES &&
           header->lanes >= 1 && header->lanes <= TUCCL_PHASED_MOST_LANES && header->zero == 0 &&
           bytes == sizeof *header + header->phase_count * sizeof(struct tuccl_phase);
}

static bool kind_is_sound(const struct tuccl_phased_header *header,
                          const struct tuccl_phase *phase) {
    if ((phase->kind == TUCCL_PHASE_SUM || reduces(phase->operation)) &&
        !reduces(header->operation))
        return false;
    switch (phase->kind) {
    case TUCCL_PHASE_LOCAL:
        if (header->local_ranks < 2 || !is_known(phase->operation))
            return false;
        if (phase->operation == ALL_REDUCE)
            return phase->pattern == ONE_PHASE || phase->pattern == TWO_PHASE;
        return phase->pattern == DIRECT;
    case TUCCL_PHASE_RAIL:
        return is_known(phase->operation) && phase->pattern == NO_PATTERN;
    case TUCCL_PHASE_SUM:
        return phase->operation == REDUCE && phase->pattern == NO_PATTERN && phase->repeats >= 2;
    default:
        return false;
    }
}

static bool is_within(uint32_t least, uint32_t number) {
    return number >= least && number <= TUCCL_PHASED_MOST_CHUNKS;
}

/* NCCL does not ask its tuner about alltoall. */
static bool rail_is_sound(const struct tuccl_phase *phase) {
    if (phase->rail_algorithm == 0)
        return phase->rail_protocol == 0 && phase->rail_nchannels == 0;
    return phase->kind == TUCCL_PHASE_RAIL && phase->operation != ALLTOALL &&
           phase->rail_algorithm <= ALGORITHMS && phase->rail_protocol < PROTOCOLS &&
           phase->rail_nchannels <= LARGEST_NCHANNELS;
}

/* With these limits no product of two numbers and a group leaves 64 bits. */
static bool numbers_are_sound(const struct tuccl_phase *phase) {
    bool strides = phase->source_stride != 0 || phase->target_stride != 0;
    return is_within(0, phase->source) && is_within(0, phase->target) &&
           is_within(1, phase->chunks) && is_within(1, phase->repeats) &&
           is_within(0, phase->source_stride) && is_within(0, phase->target_stride) &&
           !(strides && tuccl_phase_calls(phase) == 1) && rail_is_sound(phase);
}

static uint32_t chunks_of(const struct tuccl_phased_header *header, uint32_t buffer) {
    if (buffer == TUCCL_BUFFER_SCRATCH)
        return header->scratch_chunks;
    return buffer == TUCCL_BUFFER_INPUT ? header->input_chunks : header->output_chunks;
}

/* Calls of a phase may run at once: what one writes, no other reads or writes. */
static bool places_are_sound(const struct tuccl_phased_header *header,
                             const struct tuccl_phase *phase) {
    /* The caller's input must not change. */
    if (phase->source_buffer >= TUCCL_BUFFERS || phase->target_buffer >= TUCCL_BUFFERS ||
        phase->target_buffer == TUCCL_BUFFER_INPUT)
        return false;
    uint32_t group = tuccl_phase_group(header, phase);
    uint64_t last = tuccl_phase_calls(phase) - 1;
    uint64_t written = tuccl_phase_target_chunks(phase, group);
    uint64_t source_end =
        phase->source + last * phase->source_stride + tuccl_phase_source_chunks(phase, group);
    uint64_t target_end = phase->target + last * phase->target_stride + written;
    if (source_end > chunks_of(header, phase->source_buffer) ||
        target_end > chunks_of(header, phase->target_buffer) ||
        (last > 0 && phase->target_stride < written))
        return false;
    bool in_place = phase->operation == ALL_REDUCE && phase->source == phase->target &&
                    phase->source_stride == phase->target_stride;
    return phase->source_buffer != phase->target_buffer || in_place ||
           source_end <= phase->target || target_end <= phase->source;
}

bool tuccl_phased_check(const void *data, size_t bytes, struct tuccl_phased *phased, char *why,
                        size_t why_bytes) {
    const struct tuccl_phased_header *header = data;
    memset(phased, 0, sizeof *phased);
    if (!tuccl_program_is_sealed(data, bytes, TUCCL_PHASED_VERSION, why, why_bytes))
        return false;
    if (!header_is_sound(header, bytes))
        return refuse(why, why_bytes, "contradicts itself in its header");
    phased->header = header;
    phased->phases = (const void *)(header + 1);
    for (uint32_t i = 0; i < header->phase_count; i++) {
        const struct tuccl_phase *phase = &phased->phases[i];
        if (!kind_is_sound(header, phase) || !numbers_are_sound(phase) ||
            !places_are_sound(header, phase))
            return refuse(why, why_bytes, "contradicts itself in its phases");
    }
    return true;
}
