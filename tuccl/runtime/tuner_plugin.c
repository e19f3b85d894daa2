/* The plugin's face to NCCL: one exported structure per version of the tuner ABI.
 *
 * NCCL fails a collective whose tuner returns an error, so every get_coll_info returns success.
 * A choice is applied by writing cost 0 over its entry of NCCL's cost table, and only where NCCL
 * itself says that the entry can run (cost not -1): NCCL up to 2.30 selects such an entry without
 * checking it again. Where it cannot run, nothing is touched, the channel count included. */
#include "explain.h"
#include "plugin_init.h"
#include "selection.h"
#include "tuner_abi.h"

#include <stdbool.h>

#define EXPORTED __attribute__((visibility("default")))

static const char plugin_name[] = "TuCCL";

/* Ranks per node as the table counts them: 0 when nodes differ. */
static size_t ranks_per_node(size_t ranks, size_t nodes,
                             const struct tuccl_nvl_domains_v5 *domains) {
    if (domains != NULL && domains->max_ranks_per_domain > 0)
        return domains->min_ranks_per_domain == domains->max_ranks_per_domain
                   ? (size_t)domains->max_ranks_per_domain
                   : 0;
    return nodes > 0 && ranks % nodes == 0 ? ranks / nodes : 0;
}

static int init(void **context, size_t ranks, size_t nodes, size_t per_node,
                tuccl_nccl_logger logger) {
    if (context == NULL)
        return NCCL_SUCCESS;
    struct tuccl_selection *selection;
    int result = tuccl_plugin_init(&selection, ranks, nodes, per_node, logger);
    *context = selection;
    return result;
}

static int init_v2_to_v4(size_t ranks, size_t nodes, tuccl_nccl_logger logger, void **context) {
    return init(context, ranks, nodes, ranks_per_node(ranks, nodes, NULL), logger);
}

/* `constants` stays as NCCL made it: the table holds measurements, not a better model. */
static int init_v5_v6(void **context, uint64_t communicator, size_t ranks, size_t nodes,
                      tuccl_nccl_logger logger, const struct tuccl_nvl_domains_v5 *domains,
                      void *constants) {
    (void)communicator;
    (void)constants;
    return init(context, ranks, nodes, ranks_per_node(ranks, nodes, domains), logger);
}

static int finalize(void *context) {
    tuccl_selection_free(context);
    return NCCL_SUCCESS;
}

static bool force(const struct tuccl_choice *choice, float *cost, int algorithms, int protocols,
                  int *nchannels) {
    if (choice->algorithm >= algorithms || choice->protocol >= protocols)
        return false;
    float *entry = &cost[choice->algorithm * protocols + choice->protocol];
    if (!(*entry >= 0.0f))
        return false;
    *entry = 0.0f;
    if (choice->nchannels > 0 && nchannels != NULL)
        *nchannels = choice->nchannels;
    return true;
}

static void force_explained(const struct tuccl_selection *selection, int function, size_t bytes,
                            const struct tuccl_choice *choice, float *cost, int algorithms,
                            int protocols, int *nchannels) {
    char before[768], after[768];
    tuccl_describe_costs(before, sizeof before, cost, algorithms, protocols);
    bool applied = choice != NULL && force(choice, cost, algorithms, protocols, nchannels);
    tuccl_describe_costs(after, sizeof after, cost, algorithms, protocols);
    tuccl_explain_call(selection, function, bytes, choice,
                       applied ? "applied" : "cannot run here, NCCL decides", before, after);
}

static int get_coll_info_v4_to_v6(void *context, int function, size_t bytes,
                                  int pipelined_operations, float **cost, int algorithms,
                                  int protocols, int registered_buffers, int *nchannels) {
    (void)pipelined_operations;
    (void)registered_buffers;
    const struct tuccl_selection *selection = context;
    const struct tuccl_choice *choice = tuccl_selection_find(selection, function, bytes);
    if (cost == NULL || selection == NULL)
        return NCCL_SUCCESS;
    if (selection->explain != NULL)
        force_explained(selection, function, bytes, choice, (float *)(void *)cost, algorithms,
                        protocols, nchannels);
    else if (choice != NULL)
        force(choice, (float *)(void *)cost, algorithms, protocols, nchannels);
    return NCCL_SUCCESS;
}

static int get_coll_info_v3(void *context, int function, size_t bytes, int pipelined_operations,
                            float **cost, int algorithms, int protocols, int *nchannels) {
    return get_coll_info_v4_to_v6(context, function, bytes, pipelined_operations, cost, algorithms,
                                  protocols, 0, nchannels);
}

/* v2 has no cost table to say what can run, and NCCL 2.21 obeys without a check. These are its own
 * rules (NCCL 2.21 src/graph/tuning.cc and src/enqueue.cc), as far as a tuner can see them. */
static bool runs_in_v2(const struct tuccl_selection *selection, int function,
                       const struct tuccl_choice *choice, int collnet_support, int nvls_support) {
    bool several_nodes = selection->nodes > 1;
    bool all_reduce = function == NCCL_FUNC_ALL_REDUCE;
    bool simple = choice->protocol == NCCL_PROTO_SIMPLE;
    if (choice->algorithm == NCCL_ALGO_RING)
        return true;
    if (function == NCCL_FUNC_BROADCAST || function == NCCL_FUNC_REDUCE)
        return false;
    switch (choice->algorithm) {
    case NCCL_ALGO_TREE:
        return all_reduce;
    case NCCL_ALGO_COLLNET_DIRECT:
        return simple && several_nodes && collnet_support;
    case NCCL_ALGO_COLLNET_CHAIN:
        return simple && several_nodes && collnet_support && all_reduce;
    case NCCL_ALGO_NVLS:
        return simple && nvls_support && (!several_nodes || collnet_support);
    case NCCL_ALGO_NVLS_TREE:
        return simple && nvls_support && several_nodes && all_reduce;
    default: /* PAT came with 2.23. */
        return false;
    }
}

static int get_coll_info_v2(void *context, int function, size_t bytes, int collnet_support,
                            int nvls_support, int pipelined_operations, int *algorithm,
                            int *protocol, int *nchannels) {
    (void)pipelined_operations;
    const struct tuccl_selection *selection = context;
    const struct tuccl_choice *choice = tuccl_selection_find(selection, function, bytes);
    if (selection == NULL || algorithm == NULL || protocol == NULL)
        return NCCL_SUCCESS;
    bool applied =
        choice != NULL && runs_in_v2(selection, function, choice, collnet_support, nvls_support);
    if (applied) {
        *algorithm = choice->algorithm;
        *protocol = choice->protocol;
        if (choice->nchannels > 0 && nchannels != NULL)
            *nchannels = choice->nchannels;
    }
    if (selection->explain != NULL)
        tuccl_explain_call(selection, function, bytes, choice,
                           applied ? "applied" : "cannot run here, NCCL decides", "", "");
    return NCCL_SUCCESS;
}

EXPORTED extern const struct tuccl_tuner_v2 ncclTunerPlugin_v2;
EXPORTED extern const struct tuccl_tuner_v3 ncclTunerPlugin_v3;
EXPORTED extern const struct tuccl_tuner_v4 ncclTunerPlugin_v4;
EXPORTED extern const struct tuccl_tuner_v5 ncclTunerPlugin_v5;
EXPORTED extern const struct tuccl_tuner_v6 ncclTunerPlugin_v6;

const struct tuccl_tuner_v2 ncclTunerPlugin_v2 = {
    .name = plugin_name,
    .init = init_v2_to_v4,
    .get_coll_info = get_coll_info_v2,
    .destroy = finalize,
};

const struct tuccl_tuner_v3 ncclTunerPlugin_v3 = {
    .name = plugin_name,
    .init = init_v2_to_v4,
    .get_coll_info = get_coll_info_v3,
    .destroy = finalize,
};

const struct tuccl_tuner_v4 ncclTunerPlugin_v4 = {
    .name = plugin_name,
    .init = init_v2_to_v4,
    .get_coll_info = get_coll_info_v4_to_v6,
    .destroy = finalize,
};

const struct tuccl_tuner_v5 ncclTunerPlugin_v5 = {
    .name = plugin_name,
    .init = init_v5_v6,
    .get_coll_info = get_coll_info_v4_to_v6,
    .finalize = finalize,
};

/* No get_chunk_size: NCCL asks it for each part of a message that its channels take, with the
 * part's bytes instead of the message's, so it cannot find the message's entry; and an answer below
 * the protocol's grain becomes a division by zero. */
const struct tuccl_tuner_v6 ncclTunerPlugin_v6 = {
    .name = plugin_name,
    .init = init_v5_v6,
    .get_coll_info = get_coll_info_v4_to_v6,
    .finalize = finalize,
    .get_chunk_size = NULL,
};
