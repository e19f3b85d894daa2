/* The records of a phased program (version 2 of a program), byte by byte: a schedule across hosts.
 * synthesizer/programs/phase_layout.py declares them for Python, docs/reference/bundle-format.md
 * describes the format. All integers are little-endian. */
#ifndef TUCCL_PHASE_LAYOUT_H
#define TUCCL_PHASE_LAYOUT_H

#include "program_layout.h"

enum {
    TUCCL_PHASED_VERSION = 2,
    TUCCL_MOST_PHASES = 64,
    /* Chunks of a buffer: one for each rank of a large communicator. */
    TUCCL_PHASED_MOST_CHUNKS = 1 << 16,
    TUCCL_PHASED_MOST_NODES = 1 << 12,
    TUCCL_PHASED_MOST_LANES = 8,
};

enum tuccl_phase_kind {
    TUCCL_PHASE_LOCAL = 0, /* A collective of the ranks of a node, by the executor's kernels. */
    TUCCL_PHASE_RAIL = 1,  /* A collective of the ranks of a rail, by NCCL. */
    TUCCL_PHASE_SUM = 2,   /* The reduction of adjacent chunks of one rank. */
    TUCCL_PHASE_KINDS = 3,
};

/* As long as struct tuccl_program_header, and equal to it as far as `ranks`. */
struct tuccl_phased_header {
    char magic[8];
    uint32_t version; /* TUCCL_PHASED_VERSION. */
    uint32_t crc;
    unsigned char content_address[TUCCL_PROGRAM_HASH_BYTES];
    uint32_t bytes;
    uint32_t features;
    uint8_t operation;
    uint8_t pattern; /* 0. */
    uint8_t flags;   /* TUCCL_PROGRAM_RUNS_IN_PLACE. */
    uint8_t root;
    uint32_t ranks; /* nodes * local_ranks. */
    uint32_t nodes;
    uint32_t local_ranks;
    uint32_t input_chunks;
    uint32_t output_chunks;
    uint32_t scratch_chunks;
    uint32_t phase_count;
    /* Communicators of each rail, over which the slices of a call are spread. */
    uint32_t lanes;
    uint32_t zero;
};

/* synthesizer/programs/phases.py says what the fields mean. */
struct tuccl_phase {
    uint8_t kind;
    uint8_t operation; /* enum tuccl_operation; TUCCL_REDUCE for a sum. */
    uint8_t source_buffer;
    uint8_t target_buffer;
    uint32_t source;
    uint32_t target;
    uint32_t chunks;
    uint32_t repeats;
    uint32_t source_stride;
    uint32_t target_stride;
    uint8_t pattern;
    /* Of RAIL, the configuration that the tuner plugin chooses: algorithm + 1 (0: NCCL's own
     * choice), protocol, channels (0: NCCL's count); by NCCL's codes, as in an entry. */
    uint8_t rail_algorithm;
    uint8_t rail_protocol;
    uint8_t rail_nchannels;
};

static_assert(sizeof(struct tuccl_phased_header) == sizeof(struct tuccl_program_header), "header");
static_assert(sizeof(struct tuccl_phase) == 32, "phase");

#endif
