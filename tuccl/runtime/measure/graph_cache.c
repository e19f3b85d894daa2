#include "graph_cache.h"

#include <string.h>

static bool same_call(const struct tuccl_measure_call *a, const struct tuccl_measure_call *b) {
    return a->size_bytes == b->size_bytes && a->configuration == b->configuration &&
           a->operation == b->operation && a->data_type == b->data_type &&
           a->in_place == b->in_place && a->use_graph == b->use_graph && a->calls == b->calls &&
           a->communicator == b->communicator && a->computation_us == b->computation_us;
}

struct cached_graph *graph_cache_find(struct graph_cache *cache,
                                      const struct tuccl_measure_call *call) {
    for (int i = 0; i < CACHED_GRAPHS; i++) {
        struct cached_graph *entry = &cache->entries[i];
        if (entry->last_use > 0 && same_call(&entry->call, call)) {
            entry->last_use = ++cache->uses;
            return entry;
        }
    }
    return NULL;
}

static void drop(struct cached_graph *entry, const struct cuda_driver *cuda) {
    if (entry->exec != NULL)
        cuda->destroy_graph_exec(entry->exec);
    memset(entry, 0, sizeof *entry);
}

void graph_cache_add(struct graph_cache *cache, const struct cuda_driver *cuda,
                     const struct tuccl_measure_call *call, cuda_graph_exec exec) {
    struct cached_graph *oldest = &cache->entries[0];
    for (int i = 1; i < CACHED_GRAPHS; i++)
        if (cache->entries[i].last_use < oldest->last_use)
            oldest = &cache->entries[i];
    drop(oldest, cuda);
    *oldest = (struct cached_graph){*call, ++cache->uses, exec};
}

void graph_cache_clear(struct graph_cache *cache, const struct cuda_driver *cuda) {
    for (int i = 0; i < CACHED_GRAPHS; i++)
        drop(&cache->entries[i], cuda);
}
