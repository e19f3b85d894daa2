/* The recording of a process: its communicators' calls, and when they are written to a file.
 *
 * Nothing here fails a job: where something cannot be done, one line on standard error says so and
 * nothing more is recorded. */
#ifndef TUCCL_RECORDER_H
#define TUCCL_RECORDER_H

#include "call_table.h"

struct tuccl_recorded_communicator;

/* Whether this process records: TUCCL_RECORD names a directory that it can write to. `abi` is the
 * version of the profiler ABI through which NCCL called. */
bool tuccl_recorder_start(int abi);

/* NULL: it is not recorded. 0 ranks and nodes are unknown ones; the hash and rank of such a
 * communicator come with its first call. */
struct tuccl_recorded_communicator *tuccl_recorder_add(uint64_t hash, int ranks, int nodes,
                                                       int rank);
void tuccl_recorder_name(struct tuccl_recorded_communicator *communicator, uint64_t hash, int rank);

/* The communicator's rank; -1: unknown. */
int tuccl_recorder_rank(const struct tuccl_recorded_communicator *communicator);

/* Counts a call, and writes the file if it is time: at most once a second. */
void tuccl_recorder_count(struct tuccl_recorded_communicator *communicator,
                          const struct tuccl_recorded_call *call);

/* Counts a call whose operation or datatype is unknown. */
void tuccl_recorder_count_unreadable(void);

/* Ends a communicator, whose calls are kept. With the last one the file is written. */
void tuccl_recorder_end(struct tuccl_recorded_communicator *communicator);

#endif
