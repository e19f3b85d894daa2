/* One rank: its GPU, stream, buffers and communicator. */
#ifndef TUCCL_MEASURE_SESSION_H
#define TUCCL_MEASURE_SESSION_H

#include "graph_cache.h"
#include "measure.h"
#include "nccl_calls.h"

enum {
    /* Behind each buffer: a collective that writes past its end is found. */
    GUARD_BYTES = 4096,
};

struct tuccl_measure {
    struct failure failure;
    struct cuda_driver cuda;
    struct nccl nccl;
    bool has_gpu;
    int device;
    cuda_context context;
    cuda_stream stream;
    cuda_event begin, end;
    nccl_communicator communicator;
    int ranks, rank;
    device_pointer send, receive;
    size_t capacity_bytes; /* Of either, GUARD_BYTES not counted. */
    device_pointer meeting_point;
    void *host_memory; /* Of checks. */
    cuda_graph_exec meeting;
    struct graph_cache graphs;
};

/* Whether a driver call succeeded; the session's failure says why not. */
#define CUDA_OK(measure, name, ...)                                                                \
    cuda_succeeded(&(measure)->cuda, (measure)->cuda.name(__VA_ARGS__), #name, &(measure)->failure)

/* Waits until the stream is empty, and asks NCCL whether anything went wrong on the way. */
bool session_wait(struct tuccl_measure *measure);

/* Makes this thread work on the session's GPU; false before there is a communicator. */
bool session_enter(struct tuccl_measure *measure);

/* Sees to it that either buffer holds `bytes`. Growing them drops all graphs. */
bool session_reserve(struct tuccl_measure *measure, size_t bytes);

/* Has the graph captured in which ranks meet, before the first launch of a graph. A session without
 * graphs captures nothing: while NCCL has a captured call, it may put a host callback before each
 * other call too, which a job without graphs never has. */
bool session_prepare_graphs(struct tuccl_measure *measure);

/* Puts on the stream what makes all ranks wait for each other. */
bool session_meet(struct tuccl_measure *measure, bool in_graph);

/* A graph of what `enqueue` puts on the stream. */
bool session_capture(struct tuccl_measure *measure,
                     bool (*enqueue)(struct tuccl_measure *measure, const void *argument),
                     const void *argument, cuda_graph_exec *exec);

#endif
