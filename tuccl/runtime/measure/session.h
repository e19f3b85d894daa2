/* One rank: its GPU, stream, buffers and communicators. */
#ifndef TUCCL_MEASURE_SESSION_H
#define TUCCL_MEASURE_SESSION_H

#include "computation.h"
#include "cuda_driver.h"
#include "measure.h"
#include "nccl_calls.h"

/* Cache of recently used graphs, so that alternating calls need no new capture. */

enum { CACHED_GRAPHS = 48 };

struct cached_graph {
    struct tuccl_measure_call call;
    uint64_t last_use;    /* 0: empty. */
    cuda_graph_exec exec; /* NULL for calls without a graph, which are stored as warmed up. */
};

struct graph_cache {
    struct cached_graph entries[CACHED_GRAPHS];
    uint64_t uses;
};

/* Returns the entry of a call, NULL without one. */
struct cached_graph *graph_cache_find(struct graph_cache *cache,
                                      const struct tuccl_measure_call *call);

/* Stores `exec` in place of the least recently used graph. */
void graph_cache_add(struct graph_cache *cache, const struct cuda_driver *cuda,
                     const struct tuccl_measure_call *call, cuda_graph_exec exec);

enum {
    /* Guard behind each buffer, to detect a collective that writes past its end. */
    GUARD_BYTES = 4096,
    MOST_COMMUNICATORS = 8,
};

/* Where calls send from and receive to. */
struct buffers {
    device_pointer send, receive;
};

/* This rank in a communicator. */
struct member {
    nccl_communicator communicator;
    int ranks, rank;
    bool registered; /* Whether the registered buffers are windows of it, these: */
    void *send_window, *receive_window;
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
    /* The first is that of all ranks, by which they synchronize; the others were split from it. */
    struct member members[MOST_COMMUNICATORS];
    int member_count;
    struct buffers buffers;
    size_t capacity_bytes;     /* Size of each buffer without GUARD_BYTES. */
    struct buffers registered; /* As large, from NCCL; 0 until a call needs them. */
    device_pointer meeting_point;
    void *host_memory; /* Used by checks. */
    cuda_graph_exec meeting;
    struct graph_cache graphs;
    struct computation computation;
};

/* Returns whether a driver call succeeded; records the session's failure. */
#define CUDA_OK(measure, name, ...)                                                                \
    cuda_succeeded(&(measure)->cuda, (measure)->cuda.name(__VA_ARGS__), #name, &(measure)->failure)

/* The same for a call of NCCL. */
#define NCCL_OK(measure, communicator, result, name)                                               \
    nccl_succeeded(&(measure)->nccl, communicator, result, name, &(measure)->failure)

/* Waits until the stream is empty, and checks NCCL for asynchronous errors. */
bool session_wait(struct tuccl_measure *measure);

/* Makes the session's GPU current in this thread; false before the communicator exists. */
bool session_enter(struct tuccl_measure *measure);

/* Returns this rank in a call's communicator; NULL where there is none. */
const struct member *session_member(struct tuccl_measure *measure,
                                    const struct tuccl_measure_call *call);

/* Ensures that each buffer holds `bytes`. Growing them drops all graphs. */
bool session_reserve(struct tuccl_measure *measure, size_t bytes);

/* Ensures that the registered buffers exist and are windows of the call's communicator; all its
 * ranks call it alike. */
bool session_register(struct tuccl_measure *measure, const struct tuccl_measure_call *call);

/* Captures the graph by which ranks synchronize, before the first launch of a graph. A session
 * without graphs captures nothing: while NCCL has a captured call, it may add a host callback to
 * every other call, which a job without graphs never has. */
bool session_prepare_graphs(struct tuccl_measure *measure);

/* Enqueues the synchronization of all ranks on the stream. */
bool session_meet(struct tuccl_measure *measure, bool in_graph);

/* Captures a graph of the work that `enqueue` puts on the stream. */
bool session_capture(struct tuccl_measure *measure,
                     bool (*enqueue)(struct tuccl_measure *measure, const void *argument),
                     const void *argument, cuda_graph_exec *exec);

#endif
