/* libtuccl-measure.so: times and checks NCCL's collectives on one rank, for tuccl/measuring.
 *
 * Functions that can fail return a negative number then; tuccl_measure_failure says why. One
 * session is used by one thread at a time. */
#ifndef TUCCL_MEASURE_H
#define TUCCL_MEASURE_H

#include <stddef.h>
#include <stdint.h>

#define TUCCL_MEASURE_EXPORT __attribute__((visibility("default")))

enum { TUCCL_MEASURE_ID_BYTES = 128 };

struct tuccl_measure;

struct tuccl_measure_call {
    uint64_t size_bytes; /* As nccl-tests counts it. */
    /* Identifies the requested override: calls that differ in it share no graph. */
    uint64_t configuration;
    int32_t operation; /* enum operation */
    int32_t data_type; /* enum data_type */
    int32_t in_place;
    int32_t use_graph;
    int32_t calls;         /* Number of back-to-back calls in a launch. */
    int32_t communicator;  /* 0: that of all ranks; otherwise what tuccl_measure_split returned. */
    int32_t in_windows;    /* Whether its buffers are registered (ncclCommWindowRegister). */
    double computation_us; /* How long the GPU computes beside each call; 0: not at all. */
};

/* NULL without memory. */
TUCCL_MEASURE_EXPORT struct tuccl_measure *tuccl_measure_create(void);
TUCCL_MEASURE_EXPORT const char *tuccl_measure_failure(const struct tuccl_measure *measure);

/* Returns whether GPU or communicator failed, so that the process must be restarted. */
TUCCL_MEASURE_EXPORT int tuccl_measure_is_broken(const struct tuccl_measure *measure);

/* Loads NCCL from `path`; needs no GPU. The result is NCCL's version, as in 22809 for 2.28.9. */
TUCCL_MEASURE_EXPORT int tuccl_measure_load(struct tuccl_measure *measure, const char *path);

/* On rank 0: creates the id that every rank passes to tuccl_measure_join. */
TUCCL_MEASURE_EXPORT int tuccl_measure_unique_id(struct tuccl_measure *measure, unsigned char *id);

/* Takes the GPU with this number and writes its name to `name`. Returns the driver's CUDA version,
 * as in 12080 for 12.8. */
TUCCL_MEASURE_EXPORT int tuccl_measure_take_gpu(struct tuccl_measure *measure, int ordinal,
                                                char *name, size_t name_bytes);

/* Creates the communicator, with all other ranks. */
TUCCL_MEASURE_EXPORT int tuccl_measure_join(struct tuccl_measure *measure, int ranks, int rank,
                                            const unsigned char *id);

/* Splits the communicator of all ranks, together with all of them. Ranks of one colour form a
 * communicator of `ranks` ranks, in the order of the parent, in which this one is `rank`; the
 * parent stays. Returns the number of the new one, the same on all ranks that split alike. */
TUCCL_MEASURE_EXPORT int tuccl_measure_split(struct tuccl_measure *measure, int colour, int ranks,
                                             int rank);

/* Prepares how ranks synchronize before a graph. This takes NCCL calls, which a tuner and an
 * executor see: a caller that counts calls does this first, otherwise the first graph does it. */
TUCCL_MEASURE_EXPORT int tuccl_measure_prepare_graphs(struct tuccl_measure *measure);

/* Prepares computation beside calls, together with all other ranks: compiles the kernel, once, and
 * measures how much of it this GPU does in a microsecond while all ranks compute. `ptx` is the text
 * of tuccl/runtime/computation.ptx. Takes NCCL calls, as prepare_graphs does. */
TUCCL_MEASURE_EXPORT int tuccl_measure_prepare_computation(struct tuccl_measure *measure,
                                                           const char *ptx);

/* Warms a call up and captures its graph. Returns 1 for a new call, 0 for a prepared one. */
TUCCL_MEASURE_EXPORT int tuccl_measure_prepare(struct tuccl_measure *measure,
                                               const struct tuccl_measure_call *call);

/* Times a prepared call, in us per call of each launch: by events on the GPU, from the moment when
 * all ranks are synchronized, those of other communicators too. With computation the launch ends
 * when both have ended. */
TUCCL_MEASURE_EXPORT int tuccl_measure_time(struct tuccl_measure *measure,
                                            const struct tuccl_measure_call *call, int launches,
                                            double *times_us);

/* Runs a call once on known data. Returns 0 if every byte is right, 1 with the fault in `finding`.
 */
TUCCL_MEASURE_EXPORT int tuccl_measure_check(struct tuccl_measure *measure,
                                             const struct tuccl_measure_call *call, char *finding,
                                             size_t finding_bytes);

/* Runs a call that reduces floats once, on data whose sums round, in buffers that begin `shift`
 * elements later. Returns 0 if every element's sum has the bits of an addition in the order of
 * ranks in nodes of `local_ranks` ranks, then of nodes; 1 with the fault in `finding`. */
TUCCL_MEASURE_EXPORT int tuccl_measure_check_order(struct tuccl_measure *measure,
                                                   const struct tuccl_measure_call *call,
                                                   int local_ranks, int shift, char *finding,
                                                   size_t finding_bytes);

/* Leaves all communicators and frees everything. */
TUCCL_MEASURE_EXPORT void tuccl_measure_destroy(struct tuccl_measure *measure);

#endif
