/* The compiled program's records, byte by byte. lookup_tables/program_header.py and
 * synthesizer/programs/layout.py declare them for Python, docs/reference/bundle-format.md describes the
 * format. All integers are little-endian; kernels read the records in place. */
#ifndef TUCCL_PROGRAM_LAYOUT_H
#define TUCCL_PROGRAM_LAYOUT_H

#include <assert.h>
#include <stdint.h>

#define TUCCL_PROGRAM_MAGIC "TUCCLPRG"

enum {
    TUCCL_PROGRAM_VERSION = 1,
    TUCCL_PROGRAM_HASH_BYTES = 8,
    TUCCL_PROGRAM_MOST_RANKS = 8,
    TUCCL_PROGRAM_MOST_CHUNKS = 1 << 16,
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

/* Flags of a program. */
enum {
    TUCCL_PROGRAM_RUNS_IN_PLACE = 1,
    TUCCL_PROGRAM_AVERAGES = 2, /* The steps that complete a sum are marked. */
};

/* Flags of a step. */
enum {
    TUCCL_STEP_HAS_DEPENDENT = 1,
    /* Its sum holds every rank's part: an average is divided here. */
    TUCCL_STEP_COMPLETES = 2,
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

struct tuccl_program_header {
    char magic[8];
    uint32_t version;
    uint32_t crc; /* Covers all but this field. */
    unsigned char content_address[TUCCL_PROGRAM_HASH_BYTES];
    uint32_t bytes;
    uint32_t features; /* Bits for later releases, such as NVLink multicast; 0 now. */
    uint8_t operation;
    uint8_t pattern;
    uint8_t flags;
    uint8_t root;
    uint32_t ranks;
    uint32_t chunks_per_loop;
    uint32_t threadblock_count;
    uint32_t step_count;
    /* Maxima over all ranks, which determine the layout of every rank's staging area. */
    uint32_t most_threadblocks;
    uint32_t most_connections;
    uint16_t largest_message; /* Chunks. */
    uint16_t longest_threadblock;
    uint32_t most_scratch_chunks;
    uint32_t zero;
};

struct tuccl_program_rank {
    uint32_t first_threadblock;
    uint32_t threadblocks;
    uint32_t connections; /* Connections that arrive at this rank. */
    uint32_t scratch_chunks;
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

static_assert(sizeof(struct tuccl_program_header) == 72, "header");
static_assert(sizeof(struct tuccl_program_rank) == 16, "rank");
static_assert(sizeof(struct tuccl_program_threadblock) == 24, "threadblock");
static_assert(sizeof(struct tuccl_program_step) == 24, "step");
static_assert(sizeof(struct tuccl_programs_head) == 8, "section");
static_assert(sizeof(struct tuccl_programs_record) == 24, "section record");

#endif
