/* The rules of uniform programs; synthesizer/programs/form.py has the same ones. */
#include "program_rules.h"
#include "tuner_abi.h"

/* A collective of a node or a rail; sums are no collective. */
static bool is_known(uint32_t operation) {
    return operation < TUCCL_OPERATIONS && !tuccl_has_root(operation);
}

static bool kind_is_sound(const struct tuccl_program_header *header,
                          const struct tuccl_phase *phase) {
    if ((phase->kind == TUCCL_PHASE_SUM || tuccl_is_reduction(phase->operation)) &&
        !tuccl_is_reduction(header->operation))
        return false;
    switch (phase->kind) {
    case TUCCL_PHASE_LOCAL:
        if (tuccl_program_local_ranks(header) < 2 ||
            tuccl_program_local_ranks(header) > TUCCL_PROGRAM_MOST_KERNEL_RANKS ||
            !is_known(phase->operation))
            return false;
        if (phase->operation == TUCCL_ALL_REDUCE)
            return phase->pattern == TUCCL_PATTERN_ONE_PHASE ||
                   phase->pattern == TUCCL_PATTERN_TWO_PHASE;
        return phase->pattern == TUCCL_PATTERN_DIRECT;
    case TUCCL_PHASE_RAIL:
        return is_known(phase->operation) && phase->pattern == TUCCL_PATTERN_NONE;
    case TUCCL_PHASE_SUM:
        return phase->operation == TUCCL_REDUCE && phase->pattern == TUCCL_PATTERN_NONE &&
               phase->repeats >= 2;
    default:
        return false;
    }
}

static bool is_within(uint32_t least, uint32_t number) {
    return number >= least && number <= TUCCL_PROGRAM_MOST_CHUNKS;
}

static bool rail_is_sound(const struct tuccl_phase *phase) {
    if (phase->rail_algorithm == 0)
        return phase->rail_protocol == 0 && phase->rail_nchannels == 0;
    return phase->kind == TUCCL_PHASE_RAIL && tuccl_asks_tuner(phase->operation) &&
           phase->rail_algorithm <= NCCL_ALGORITHMS && phase->rail_protocol < NCCL_PROTOCOLS &&
           phase->rail_nchannels <= TUCCL_MOST_NCHANNELS;
}

/* With these limits no product of two numbers and a group leaves 64 bits. */
static bool numbers_are_sound(const struct tuccl_phase *phase) {
    bool strides = phase->source_stride != 0 || phase->target_stride != 0;
    return is_within(0, phase->source) && is_within(0, phase->target) &&
           is_within(1, phase->chunks) && is_within(1, phase->repeats) &&
           is_within(0, phase->source_stride) && is_within(0, phase->target_stride) &&
           !(strides && tuccl_phase_calls(phase) == 1) && rail_is_sound(phase);
}

/* Calls of a phase may run at once: what one writes, no other reads or writes. */
static bool places_are_sound(const struct tuccl_program *program, const struct tuccl_phase *phase) {
    /* The caller's input must not change. */
    if (phase->source_buffer >= TUCCL_BUFFERS || phase->target_buffer >= TUCCL_BUFFERS ||
        phase->target_buffer == TUCCL_BUFFER_INPUT)
        return false;
    uint32_t group = tuccl_phase_group(program->header, phase);
    uint64_t last = tuccl_phase_calls(phase) - 1;
    uint64_t written = tuccl_phase_target_chunks(phase, group);
    uint64_t source_end =
        phase->source + last * phase->source_stride + tuccl_phase_source_chunks(phase, group);
    uint64_t target_end = phase->target + last * phase->target_stride + written;
    if (source_end > tuccl_program_buffer_chunks(program, 0, phase->source_buffer) ||
        target_end > tuccl_program_buffer_chunks(program, 0, phase->target_buffer) ||
        (last > 0 && phase->target_stride < written))
        return false;
    bool in_place = phase->operation == TUCCL_ALL_REDUCE && phase->source == phase->target &&
                    phase->source_stride == phase->target_stride;
    return phase->source_buffer != phase->target_buffer || in_place ||
           source_end <= phase->target || target_end <= phase->source;
}

const char *tuccl_fault_of_uniform(const struct tuccl_program *program) {
    const struct tuccl_program_header *header = program->header;
    /* A chunk of what ranks divide is a rank's part. */
    if (!is_known(header->operation) || (tuccl_is_divided(header->operation) && header->chunks > 1))
        return "contradicts itself in its header";
    for (uint32_t i = 0; i < header->phase_count; i++) {
        const struct tuccl_phase *phase = &program->phases[i];
        if (!kind_is_sound(header, phase) || !numbers_are_sound(phase) ||
            !places_are_sound(program, phase))
            return "contradicts itself in its phases";
    }
    return NULL;
}
