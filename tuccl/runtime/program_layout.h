/* The compiled program's records, byte by byte. lookup_tables/program_header.py and
 * synthesizer/programs/layout.py declare them for Python, docs/reference/bundle-format.md describes
 * the format. All integers are little-endian; kernels read the records in place. */
#ifndef TUCCL_PROGRAM_LAYOUT_H
#define TUCCL_PROGRAM_LAYOUT_H

#include "collectives.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define TUCCL_PROGRAM_MAGIC "TUCCLPRG"

enum {
    TUCCL_PROGRAM_VERSION = 1,
    TUCCL_PROGRAM_HASH_BYTES = 8,
    /* Of a node: with more, the addresses of all peers do not fit the 4 KB of a kernel's
       parameters. */
    TUCCL_PROGRAM_MOST_RANKS = 32,
    /* Of a node, for phases that kernels of patterns run: a thread has a line of each peer in its
       registers. */
    TUCCL_PROGRAM_MOST_KERNEL_RANKS = 16,
    TUCCL_PROGRAM_MOST_NODES = 1 << 12,
    /* Of a buffer. */
    TUCCL_PROGRAM_MOST_CHUNKS = 1 << 16,
    TUCCL_PROGRAM_MOST_ROUNDS = 64,
    TUCCL_PROGRAM_MOST_PHASES = 2 * TUCCL_PROGRAM_MOST_ROUNDS + 1,
    TUCCL_PROGRAM_MOST_LANES = 8,
    /* Chunks of all statements together. */
    TUCCL_PROGRAM_MOST_MOVED = 1 << 18,
    /* Per rank: this many blocks run at once on every supported GPU. */
    TUCCL_PROGRAM_MOST_THREADBLOCKS = 80,
    /* Steps per threadblock, and chunks per step. */
    TUCCL_PROGRAM_MOST_STEPS = 0xFFFF,
    /* Messages that a connection holds before its sender waits. */
    TUCCL_PROGRAM_SLOTS = 8,
    /* A hundred times the schedules of eight ranks. With the two limits below it bounds the cost of
       loading any bundle's programs: a few seconds, and a few times their size in memory. */
    TUCCL_PROGRAM_MOST_BYTES = 1 << 20,
    /* Bytes of the bundle's section, and schedules in it that have a program. */
    TUCCL_PROGRAMS_MOST_BYTES = 1 << 24,
    TUCCL_PROGRAMS_MOST = 1024,
    TUCCL_NO_PEER = -1,
    TUCCL_NO_CONNECTION = 0xFFFF,
    TUCCL_NO_DEPENDENCE = -1,
};

/* The kernel of a call: one written for a pattern, or the interpreter of a program. The compiler of
 * programs recognises patterns (docs/reference/programs.md). */
enum tuccl_pattern {
    TUCCL_PATTERN_NONE = 0,
    /* all_reduce: every rank sends all data to every rank. */
    TUCCL_PATTERN_ONE_PHASE = 1,
    /* all_reduce: every rank reduces a shard and sends it to every rank. */
    TUCCL_PATTERN_TWO_PHASE = 2,
    /* All other operations: every rank sends directly to the ranks that need its data. */
    TUCCL_PATTERN_DIRECT = 3,
    TUCCL_PATTERNS = 4,
};

/* Flags of a program. */
enum {
    TUCCL_PROGRAM_RUNS_IN_PLACE = 1,
    TUCCL_PROGRAM_AVERAGES = 2,
    /* All ranks do the same in nodes of equal size: one record stands for all of them. */
    TUCCL_PROGRAM_IS_UNIFORM = 4,
};

enum tuccl_phase_kind {
    /* Steps of the threadblocks of all ranks, which are on one node. The only phase. */
    TUCCL_PHASE_STEPS = 0,
    /* Of a uniform program: */
    TUCCL_PHASE_LOCAL = 1, /* A collective of the ranks of each node, by the executor's kernels. */
    TUCCL_PHASE_RAIL = 2,  /* A collective of the ranks of each rail, by NCCL. */
    TUCCL_PHASE_SUM = 3,   /* The reduction of adjacent chunks of each rank. */
    /* Of nodes of any sizes: */
    TUCCL_PHASE_STAGE = 4, /* Statements inside nodes, which have effect one after the other. */
    TUCCL_PHASE_ROUND = 5, /* Copies between nodes at once; statements inside nodes beside them. */
    TUCCL_PHASE_KINDS = 6,
};

/* Flags of a step. */
enum {
    TUCCL_STEP_HAS_DEPENDENT = 1,
    /* Its sum holds every rank's part: an average is divided here. */
    TUCCL_STEP_COMPLETES = 2,
};

/* Flags of a statement. */
enum {
    TUCCL_STATEMENT_ADDS = 1,      /* The target becomes the operand and the source added up. */
    TUCCL_STATEMENT_COMPLETES = 2, /* As TUCCL_STEP_COMPLETES. */
};

enum tuccl_step_type {
    TUCCL_STEP_S = 0,
    TUCCL_STEP_R = 1,
    TUCCL_STEP_RCS = 2,
    TUCCL_STEP_RRC = 3,
    TUCCL_STEP_RRS = 4,
    TUCCL_STEP_RRCS = 5,
    TUCCL_STEP_RE = 6,
    TUCCL_STEP_CPY = 7,
    TUCCL_STEP_NOP = 8,
    TUCCL_STEP_TYPES = 9,
};

enum tuccl_buffer {
    TUCCL_BUFFER_INPUT = 0,
    TUCCL_BUFFER_OUTPUT = 1,
    TUCCL_BUFFER_SCRATCH = 2,
    TUCCL_BUFFERS = 3,
};

/* The records follow it: ranks (one of a uniform program), phases, threadblocks, steps,
 * statements. */
struct tuccl_program_header {
    char magic[8];
    uint32_t version;
    uint32_t crc; /* Covers all but this field. */
    unsigned char content_address[TUCCL_PROGRAM_HASH_BYTES];
    uint32_t bytes;
    uint32_t features; /* Bits for later releases, such as NVLink multicast; 0 now. */
    uint8_t operation;
    uint8_t flags;
    uint16_t root;
    uint32_t ranks;
    uint32_t nodes;
    uint32_t chunks; /* Of a rank's part, or of the whole buffer if ranks do not divide it. */
    uint32_t phase_count;
    uint32_t lanes; /* Communicators of each rail, or of all ranks for rounds, over which the slices
                     * of a call are spread. */
    uint32_t threadblock_count;
    uint32_t step_count;
    uint32_t statement_count;
    /* Maxima over all ranks, which determine the layout of every rank's memory. */
    uint32_t most_scratch_chunks;
    uint32_t most_threadblocks;
    uint32_t most_connections;
    uint16_t largest_message; /* Chunks of a step's. */
    uint16_t longest_threadblock;
    uint32_t zero;
};

struct tuccl_program_rank {
    uint32_t node; /* The ranks of a node follow one another. */
    uint32_t scratch_chunks;
    uint32_t first_threadblock;
    uint16_t threadblocks;
    uint16_t connections; /* Connections that arrive at this rank. */
};

/* synthesizer/programs/phases.py says what the fields mean. Fields that a kind does not use are 0.
 */
struct tuccl_phase {
    uint8_t kind;
    /* Of LOCAL, RAIL and SUM, for which it is TUCCL_REDUCE. */
    uint8_t operation;
    uint8_t source_buffer;
    uint8_t target_buffer;
    union {
        uint32_t source;
        uint32_t first_statement; /* Of STAGE and ROUND. */
    };
    uint32_t target;
    union {
        uint32_t chunks;
        uint32_t statements; /* Of STAGE and ROUND; 0: no rank has anything to do. */
    };
    uint32_t repeats;
    uint32_t source_stride;
    uint32_t target_stride;
    uint8_t pattern; /* Of STEPS and LOCAL. */
    /* Of RAIL, the configuration that the tuner plugin chooses: algorithm + 1 (0: NCCL's own
     * choice), protocol, channels (0: NCCL's count); by NCCL's codes, as in an entry. */
    uint8_t rail_algorithm;
    uint8_t rail_protocol;
    uint8_t rail_nchannels;
};

struct tuccl_program_threadblock {
    int16_t send_peer;
    int16_t receive_peer;
    uint16_t channel;
    uint16_t zero;
    uint16_t send_connection; /* Number among the connections that arrive at the send peer. */
    uint16_t receive_connection;
    uint32_t first_step;
    uint32_t steps;
    uint32_t also_zero;
};

struct tuccl_program_step {
    uint8_t type;
    uint8_t source_buffer;
    uint8_t destination_buffer;
    uint8_t flags;
    uint32_t source;
    uint32_t destination;
    uint32_t count;
    int32_t awaited_threadblock; /* A threadblock of the same rank. */
    uint32_t awaited_step;
};

/* Copies chunks, or adds them up. */
struct tuccl_statement {
    uint8_t flags;
    uint8_t source_buffer;
    uint8_t target_buffer;
    uint8_t operand_buffer; /* Of the target's rank. */
    uint32_t source;
    uint32_t target;
    uint32_t operand;
    uint16_t source_rank;
    uint16_t target_rank;
    uint32_t chunks;
};

/* Head of the bundle's section of programs; a record for each schedule follows. */
struct tuccl_programs_head {
    uint32_t count;
    uint32_t zero;
};

struct tuccl_programs_record {
    uint64_t offset; /* Offset in the section. */
    uint32_t bytes;  /* 0 without a program. */
    uint32_t crc;
    unsigned char content_address[TUCCL_PROGRAM_HASH_BYTES];
};

static_assert(sizeof(struct tuccl_program_header) == 88, "header");
static_assert(sizeof(struct tuccl_program_rank) == 16, "rank");
static_assert(sizeof(struct tuccl_phase) == 32, "phase");
static_assert(sizeof(struct tuccl_program_threadblock) == 24, "threadblock");
static_assert(sizeof(struct tuccl_program_step) == 24, "step");
static_assert(sizeof(struct tuccl_statement) == 24, "statement");
static_assert(sizeof(struct tuccl_programs_head) == 8, "section");
static_assert(sizeof(struct tuccl_programs_record) == 24, "section record");

/* A program in memory. */
struct tuccl_program {
    const struct tuccl_program_header *header;
    const struct tuccl_program_rank *ranks;
    const struct tuccl_phase *phases;
    const struct tuccl_program_threadblock *threadblocks;
    const struct tuccl_program_step *steps;
    const struct tuccl_statement *statements;
};

static inline bool tuccl_program_is_uniform(const struct tuccl_program_header *header) {
    return (header->flags & TUCCL_PROGRAM_IS_UNIFORM) != 0;
}

/* Parts of the larger buffer. */
static inline uint32_t tuccl_program_parts(const struct tuccl_program_header *header) {
    return tuccl_is_divided(header->operation) ? header->ranks : 1;
}

/* The chunks of a rank's buffer; 0 if the caller may pass a null pointer. */
static inline uint32_t tuccl_program_buffer_chunks(const struct tuccl_program *program,
                                                   uint32_t rank, uint32_t buffer) {
    const struct tuccl_program_header *header = program->header;
    if (buffer == TUCCL_BUFFER_SCRATCH)
        return program->ranks[tuccl_program_is_uniform(header) ? 0 : rank].scratch_chunks;
    bool input = buffer == TUCCL_BUFFER_INPUT;
    uint32_t at_root = tuccl_flow(header->operation) & (input ? TUCCL_FROM_ROOT : TUCCL_TO_ROOT);
    if (at_root != 0 && rank != header->root)
        return 0;
    bool is_part =
        input ? tuccl_input_is_part(header->operation) : tuccl_output_is_part(header->operation);
    return header->chunks * (is_part ? 1 : tuccl_program_parts(header));
}

/* The ranks of a node of a uniform program. */
static inline uint32_t tuccl_program_local_ranks(const struct tuccl_program_header *header) {
    return header->ranks / header->nodes;
}

/* Whether a program has stages and rounds. */
static inline bool tuccl_program_has_statements(const struct tuccl_program *program) {
    return program->phases[0].kind >= TUCCL_PHASE_STAGE;
}

/* Properties of a step's type. */
static inline bool tuccl_step_sends(uint32_t type) {
    return type == TUCCL_STEP_S || type == TUCCL_STEP_RCS || type == TUCCL_STEP_RRS ||
           type == TUCCL_STEP_RRCS;
}
static inline bool tuccl_step_receives(uint32_t type) {
    return type >= TUCCL_STEP_R && type <= TUCCL_STEP_RRCS;
}
static inline bool tuccl_step_reads(uint32_t type) {
    return type == TUCCL_STEP_S || (type >= TUCCL_STEP_RRC && type <= TUCCL_STEP_CPY);
}
static inline bool tuccl_step_writes(uint32_t type) {
    return type != TUCCL_STEP_S && type != TUCCL_STEP_RRS && type != TUCCL_STEP_NOP;
}

/* Calls of a phase of a uniform program, the ranks that take part in one, and the chunks that it
 * reads and writes. */
static inline uint32_t tuccl_phase_calls(const struct tuccl_phase *phase) {
    return phase->kind == TUCCL_PHASE_SUM ? 1 : phase->repeats;
}
static inline uint32_t tuccl_phase_group(const struct tuccl_program_header *header,
                                         const struct tuccl_phase *phase) {
    if (phase->kind == TUCCL_PHASE_LOCAL)
        return tuccl_program_local_ranks(header);
    return phase->kind == TUCCL_PHASE_RAIL ? header->nodes : 1;
}
static inline uint64_t tuccl_phase_source_chunks(const struct tuccl_phase *phase, uint32_t group) {
    if (phase->kind == TUCCL_PHASE_SUM)
        return (uint64_t)phase->chunks * phase->repeats;
    return (uint64_t)phase->chunks * (tuccl_splits(phase->operation) ? group : 1);
}
static inline uint64_t tuccl_phase_target_chunks(const struct tuccl_phase *phase, uint32_t group) {
    return (uint64_t)phase->chunks * (tuccl_joins(phase->operation) ? group : 1);
}

#endif
