/* Cache of recently used graphs, so that alternating calls need no new capture. */
#ifndef TUCCL_MEASURE_GRAPH_CACHE_H
#define TUCCL_MEASURE_GRAPH_CACHE_H

#include "cuda_driver.h"
#include "measure.h"

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

void graph_cache_clear(struct graph_cache *cache, const struct cuda_driver *cuda);

#endif
