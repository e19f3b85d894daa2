/* The graphs of the calls used last, so that runs in turn need no capture each time. */
#ifndef TUCCL_MEASURE_GRAPH_CACHE_H
#define TUCCL_MEASURE_GRAPH_CACHE_H

#include "cuda_driver.h"
#include "measure.h"

enum { CACHED_GRAPHS = 48 };

struct cached_graph {
    struct tuccl_measure_call call;
    uint64_t last_use;    /* 0: empty. */
    cuda_graph_exec exec; /* NULL for calls without a graph, which are kept as warmed up. */
};

struct graph_cache {
    struct cached_graph entries[CACHED_GRAPHS];
    uint64_t uses;
};

/* The entry of a call, NULL when there is none. */
struct cached_graph *graph_cache_find(struct graph_cache *cache,
                                      const struct tuccl_measure_call *call);

/* Takes `exec` over, in place of the graph that was not used for the longest time. */
void graph_cache_add(struct graph_cache *cache, const struct cuda_driver *cuda,
                     const struct tuccl_measure_call *call, cuda_graph_exec exec);

void graph_cache_clear(struct graph_cache *cache, const struct cuda_driver *cuda);

#endif
