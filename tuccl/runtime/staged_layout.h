/* The records of a staged program (version 3 of a program), byte by byte: any schedule across
 * hosts, as stages inside nodes and rounds on the network. synthesizer/programs/staged/staged_layout.py
 * declares them for Python, docs/reference/bundle-format.md describes the format. All integers are
 * little-endian. */
#ifndef TUCCL_STAGED_LAYOUT_H
#define TUCCL_STAGED_LAYOUT_H

#include "program_layout.h"

enum {
    TUCCL_STAGED_VERSION = 3,
    TUCCL_STAGED_MOST_ROUNDS = 64,
    TUCCL_STAGED_MOST_NODES = 1 << 12,
    /* Chunks of a buffer. */
    TUCCL_STAGED_MOST_CHUNKS = 1 << 16,
    /* Chunks of all statements together. */
    TUCCL_STAGED_MOST_MOVED = 1 << 18,
};

/* Flags of a statement. */
enum {
    TUCCL_STATEMENT_ADDS = 1, /* The target becomes the operand and the source added up. */
    /* Its sum holds every rank's part: an average is divided here. */
    TUCCL_STATEMENT_COMPLETES = 2,
};

/* As long as struct tuccl_program_header, and equal to it as far as `ranks`. */
struct tuccl_staged_header {
    char magic[8];
    uint32_t version; /* TUCCL_STAGED_VERSION. */
    uint32_t crc;
    unsigned char content_address[TUCCL_PROGRAM_HASH_BYTES];
    uint32_t bytes;
    uint32_t features;
    uint8_t operation;
    uint8_t pattern; /* 0. */
    uint8_t flags;   /* TUCCL_PROGRAM_RUNS_IN_PLACE, of all but alltoall; TUCCL_PROGRAM_AVERAGES. */
    uint8_t zero;
    uint32_t ranks;
    uint32_t nodes;
    uint32_t chunks; /* Of a rank's part, or of the whole buffer where it is not divided. */
    uint32_t rounds; /* One fewer than stages. */
    uint32_t statement_count;
    uint32_t root;
    uint32_t most_scratch_chunks;
    uint32_t zeros[2];
};

struct tuccl_staged_rank {
    uint32_t node; /* The ranks of a node follow one another. */
    uint32_t scratch_chunks;
};

/* Stage 0, round 1, stage 1, round 2 and so on, in the order of their execution on all ranks. */
struct tuccl_staged_item {
    uint32_t first_statement;
    uint32_t statements; /* 0: no rank has anything to do. */
};

/* Copies chunks, or adds them up: inside a node in a stage, one statement after the other; between
 * nodes, without adding, in a round, all at once. */
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

static_assert(sizeof(struct tuccl_staged_header) == sizeof(struct tuccl_program_header), "header");
static_assert(sizeof(struct tuccl_staged_rank) == 8, "rank");
static_assert(sizeof(struct tuccl_staged_item) == 8, "item");
static_assert(sizeof(struct tuccl_statement) == 24, "statement");

#endif
