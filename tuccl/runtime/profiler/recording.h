/* What a process has recorded, as the recorder keeps it and the writer reads it. */
#ifndef TUCCL_RECORDING_H
#define TUCCL_RECORDING_H

#include "call_table.h"

#include <limits.h>

enum { RECORDED_COMMUNICATORS = 512 };

struct tuccl_recorded_communicator {
    struct tuccl_call_table *table; /* NULL: not yet used, or out of memory. */
    uint64_t hash;
    int ranks; /* 0: unknown. */
    int nodes; /* 0: unknown. */
    int rank;  /* -1: unknown. */
    bool is_over;
};

struct tuccl_recording {
    char directory[PATH_MAX / 2];
    char host[65]; /* Letters, digits, dots, dashes and underscores alone. */
    long process;
    uint64_t began_ns; /* Tells processes apart that had one number. */
    int abi;
    uint32_t communicators_used;
    uint64_t communicators_left_out;
    uint64_t calls_left_out; /* Of unknown operation or datatype, or with no place in a table. */
    struct tuccl_recorded_communicator communicators[RECORDED_COMMUNICATORS];
};

/* Replaces the process's file; false with errno: it could not be written. One thread at a time. */
bool tuccl_recording_write(const struct tuccl_recording *recording);

#endif
