/* Computation beside which calls are timed: matrix products on a stream of their own, by the kernel
 * of tuccl/runtime/computation.ptx. */
#ifndef TUCCL_MEASURE_COMPUTATION_H
#define TUCCL_MEASURE_COMPUTATION_H

#include "cuda_driver.h"

struct computation {
    cuda_module module;
    cuda_function kernel; /* NULL: not loaded. */
    cuda_stream stream;
    cuda_event forked, joined;
    device_pointer operands, results;
    unsigned shared_bytes;       /* Of a block: all that it may have. */
    unsigned blocks_in_a_kernel; /* At most. */
    double blocks_per_us;        /* With nothing beside it; 0: not known yet. */
};

/* Compiles the kernel for the current GPU and allocates what it reads and writes. */
bool computation_load(struct computation *computation, const struct cuda_driver *cuda, int device,
                      const char *ptx, struct failure *failure);

/* Lets the computation begin when `stream` has come to this place. */
bool computation_fork(const struct computation *computation, const struct cuda_driver *cuda,
                      cuda_stream stream, struct failure *failure);

/* Enqueues so many blocks, in kernels of a few waves as trainings have them. */
bool computation_enqueue(const struct computation *computation, const struct cuda_driver *cuda,
                         uint64_t blocks, struct failure *failure);

/* Lets `stream` go on when the computation has ended. */
bool computation_join(const struct computation *computation, const struct cuda_driver *cuda,
                      cuda_stream stream, struct failure *failure);

void computation_free(struct computation *computation, const struct cuda_driver *cuda);

#endif
