/* The plugin's interface to NCCL: one exported structure per version of the tuner ABI.
 *
 * NCCL fails a collective whose tuner returns an error, so every get_coll_info returns success.
 * A choice is applied by writing cost 0 over its entry of NCCL's cost table, and only where NCCL
 * itself says that the entry can run (cost not -1): NCCL up to 2.30 selects such an entry without
 * checking it again. Where it cannot run, nothing is touched, the channel count included. */
#include "control.h"
#include "plugin_init.h"
#include "rail_request.h"
#include "selection.h"
#include "tuner_abi.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const algorithm_names[NCCL_ALGORITHMS] = {
    "Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"};
static const char *const protocol_names[NCCL_PROTOCOLS] = {"LL", "LL128", "Simple"};
static const char *const function_names[TUCCL_FUNCTIONS] = {"broadcast", "reduce", "all_gather",
                                                            "reduce_scatter", "all_reduce"};

static void describe_costs(char *text, size_t text_bytes, const float *cost, int algorithms,
                           int protocols) {
    size_t used = 0;
    text[0] = '\0';
    for (int a = 0; a < algorithms && a < NCCL_ALGORITHMS; a++)
        for (int p = 0; p < protocols && p < NCCL_PROTOCOLS; p++) {
            float time_us = cost[a * protocols + p];
            if (!(time_us >= 0.0f))
                continue;
            int length =
                snprintf(text + used, text_bytes - used, "%s%s/%s %.1f", used > 0 ? ", " : "",
                         algorithm_names[a], protocol_names[p], (double)time_us);
            if (length < 0 || (size_t)length >= text_bytes - used)
                return; /* Cut off; snprintf has terminated it. */
            used += (size_t)length;
        }
}

/* Logs a call without an entry. */
static void explain_no_entry(const struct tuccl_selection *selection, int function, size_t bytes) {
    char operation[32];
    if (function >= 0 && function < TUCCL_FUNCTIONS)
        snprintf(operation, sizeof operation, "%s", function_names[function]);
    else
        snprintf(operation, sizeof operation, "function %d", function);
    selection->explain(NCCL_LOG_INFO, NCCL_TUNING, "tuccl", __LINE__,
                       "TuCCL: %s of %zu bytes: no entry, NCCL decides", operation, bytes);
}

/* Logs a call with an entry. The costs come from describe_costs; NULL for v2, which has no
 * cost table. */
static void explain_choice(const struct tuccl_selection *selection, int function, size_t bytes,
                           const struct tuccl_choice *choice, bool applied,
                           const char *costs_before, const char *costs_after) {
    bool with_costs = costs_before != NULL && costs_after != NULL;
    selection->explain(
        NCCL_LOG_INFO, NCCL_TUNING, "tuccl", __LINE__,
        "TuCCL: %s of %zu bytes: entry %llu..%llu wants %s/%s on %u channels (0: NCCL's count; "
        "tuned %.1f us, default %.1f us): %s%s%s%s%s%s",
        function_names[function], bytes, (unsigned long long)choice->min_bytes,
        (unsigned long long)choice->max_bytes, algorithm_names[choice->algorithm],
        protocol_names[choice->protocol], choice->nchannels, (double)choice->builtin_time_us,
        (double)choice->default_time_us, applied ? "applied" : "cannot run here, NCCL decides",
        with_costs ? "; costs before [" : "", with_costs ? costs_before : "",
        with_costs ? "] after [" : "", with_costs ? costs_after : "", with_costs ? "]" : "");
}

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

static int init(void **context, int abi, size_t ranks, size_t nodes, size_t per_node,
                tuccl_nccl_logger logger) {
    if (context == NULL)
        return NCCL_SUCCESS;
    struct tuccl_selection *selection;
    int result = tuccl_plugin_init(&selection, abi, ranks, nodes, per_node, logger);
    *context = selection;
    return result;
}

static int init_v3(size_t ranks, size_t nodes, tuccl_nccl_logger logger, void **context) {
    return init(context, 3, ranks, nodes, ranks_per_node(ranks, nodes, NULL), logger);
}

static int init_v4(size_t ranks, size_t nodes, tuccl_nccl_logger logger, void **context) {
    return init(context, 4, ranks, nodes, ranks_per_node(ranks, nodes, NULL), logger);
}

/* Later versions mark in the cost table what NCCL_ALGO and NCCL_PROTO exclude; v2 has no table. */
static int init_v2(size_t ranks, size_t nodes, tuccl_nccl_logger logger, void **context) {
    int result = init(context, 2, ranks, nodes, ranks_per_node(ranks, nodes, NULL), logger);
    const char *variable = getenv("NCCL_ALGO") != NULL    ? "NCCL_ALGO"
                           : getenv("NCCL_PROTO") != NULL ? "NCCL_PROTO"
                                                          : NULL;
    if (variable == NULL || context == NULL || *context == NULL)
        return result;
    tuccl_selection_free(*context);
    *context = NULL;
    if (logger != NULL)
        logger(NCCL_LOG_INFO, NCCL_TUNING, "tuccl", __LINE__,
               "TuCCL: %s is set, and this NCCL does not tell tuners what it excludes; NCCL stays "
               "as it is",
               variable);
    return result;
}

/* `constants` is unchanged: the table holds measurements, not a better model. */
static int init_v5(void **context, uint64_t communicator, size_t ranks, size_t nodes,
                   tuccl_nccl_logger logger, const struct tuccl_nvl_domains_v5 *domains,
                   void *constants) {
    (void)communicator;
    (void)constants;
    return init(context, 5, ranks, nodes, ranks_per_node(ranks, nodes, domains), logger);
}

static int init_v6(void **context, uint64_t communicator, size_t ranks, size_t nodes,
                   tuccl_nccl_logger logger, const struct tuccl_nvl_domains_v5 *domains,
                   void *constants) {
    (void)communicator;
    (void)constants;
    return init(context, 6, ranks, nodes, ranks_per_node(ranks, nodes, domains), logger);
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
    describe_costs(before, sizeof before, cost, algorithms, protocols);
    bool applied = force(choice, cost, algorithms, protocols, nchannels);
    describe_costs(after, sizeof after, cost, algorithms, protocols);
    explain_choice(selection, function, bytes, choice, applied, before, after);
}

static void force_override(struct tuccl_control *control, const struct tuccl_question *question,
                           float *cost, int *nchannels) {
    struct tuccl_choice override;
    if (tuccl_control_ask(control, question, &override))
        tuccl_control_answer(
            control, force(&override, cost, question->algorithms, question->protocols, nchannels));
}

static bool rail_choice(const struct tuccl_selection *selection, struct tuccl_choice *choice) {
    uint64_t word = __atomic_load_n(&selection->rail->word, __ATOMIC_SEQ_CST);
    *choice = (struct tuccl_choice){
        .max_bytes = UINT64_MAX,
        .algorithm = word & 0xFF,
        .protocol = (word >> 8) & 0xFF,
        .nchannels = (word >> 16) & 0xFFFF,
    };
    return choice->algorithm != TUCCL_RAIL_NO_REQUEST;
}

/* The choice of the communicator's class, if the estimates tell it, else that of its shape. */
static const struct tuccl_choice *choice_of_call(const struct tuccl_selection *selection,
                                                 int function, size_t bytes, int pipelined,
                                                 const float *cost, int algorithms, int protocols) {
    if (cost != NULL && algorithms > NCCL_ALGO_RING && protocols > NCCL_PROTO_SIMPLE) {
        float estimate_us = cost[NCCL_ALGO_RING * protocols + NCCL_PROTO_SIMPLE];
        const struct tuccl_choice *placed =
            tuccl_selection_find_placed(selection, function, bytes, (double)estimate_us, pipelined);
        if (placed != NULL)
            return placed;
    }
    return tuccl_selection_find(selection, function, bytes);
}

static int get_coll_info_v4_to_v6(void *context, int function, size_t bytes,
                                  int pipelined_operations, float **cost, int algorithms,
                                  int protocols, int registered_buffers, int *nchannels) {
    (void)registered_buffers;
    const struct tuccl_selection *selection = context;
    const struct tuccl_choice *choice =
        choice_of_call(selection, function, bytes, pipelined_operations,
                       (const float *)(const void *)cost, algorithms, protocols);
    if (cost == NULL || selection == NULL)
        return NCCL_SUCCESS;
    struct tuccl_choice requested;
    if (selection->rail != NULL) {
        if (rail_choice(selection, &requested))
            force(&requested, (float *)(void *)cost, algorithms, protocols, nchannels);
        return NCCL_SUCCESS;
    }
    if (selection->control != NULL) {
        float *costs = (float *)(void *)cost;
        int count = nchannels != NULL ? *nchannels : 0;
        struct tuccl_question question = {function, bytes, costs, algorithms, protocols, count};
        force_override(selection->control, &question, costs, nchannels);
        return NCCL_SUCCESS;
    }
    if (choice == NULL && selection->explain != NULL)
        explain_no_entry(selection, function, bytes);
    else if (choice != NULL && selection->explain != NULL)
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

/* v2 has no cost table that marks what can run, and NCCL 2.21 obeys without a check. Its arguments
 * do not suffice for other choices: LL128 corrupts data where NCCL disables it, NVLink SHARP ends
 * at a host's border although the communicator counts as one node, CollNet needs a switch. Ring and
 * tree run on every machine (NCCL 2.21 src/graph/tuning.cc and src/enqueue.cc). */
static bool runs_in_v2(int function, const struct tuccl_choice *choice) {
    if (choice->protocol != NCCL_PROTO_LL && choice->protocol != NCCL_PROTO_SIMPLE)
        return false;
    return choice->algorithm == NCCL_ALGO_RING ||
           (choice->algorithm == NCCL_ALGO_TREE && function == NCCL_FUNC_ALL_REDUCE);
}

static bool force_in_v2(int function, const struct tuccl_choice *choice, int *algorithm,
                        int *protocol, int *nchannels) {
    if (!runs_in_v2(function, choice))
        return false;
    *algorithm = choice->algorithm;
    *protocol = choice->protocol;
    if (choice->nchannels > 0 && nchannels != NULL)
        *nchannels = choice->nchannels;
    return true;
}

static int get_coll_info_v2(void *context, int function, size_t bytes, int collnet_support,
                            int nvls_support, int pipelined_operations, int *algorithm,
                            int *protocol, int *nchannels) {
    (void)collnet_support;
    (void)nvls_support;
    (void)pipelined_operations;
    const struct tuccl_selection *selection = context;
    const struct tuccl_choice *choice = tuccl_selection_find(selection, function, bytes);
    if (selection == NULL || algorithm == NULL || protocol == NULL)
        return NCCL_SUCCESS;
    struct tuccl_choice requested;
    if (selection->rail != NULL) {
        if (rail_choice(selection, &requested))
            force_in_v2(function, &requested, algorithm, protocol, nchannels);
        return NCCL_SUCCESS;
    }
    if (selection->control != NULL) {
        struct tuccl_question question = {.function = function, .bytes = bytes};
        struct tuccl_choice override;
        if (tuccl_control_ask(selection->control, &question, &override))
            tuccl_control_answer(selection->control,
                                 force_in_v2(function, &override, algorithm, protocol, nchannels));
        return NCCL_SUCCESS;
    }
    if (choice == NULL) {
        if (selection->explain != NULL)
            explain_no_entry(selection, function, bytes);
        return NCCL_SUCCESS;
    }
    bool applied = force_in_v2(function, choice, algorithm, protocol, nchannels);
    if (selection->explain != NULL)
        explain_choice(selection, function, bytes, choice, applied, NULL, NULL);
    return NCCL_SUCCESS;
}

EXPORTED extern const struct tuccl_tuner_v2 ncclTunerPlugin_v2;
EXPORTED extern const struct tuccl_tuner_v3 ncclTunerPlugin_v3;
EXPORTED extern const struct tuccl_tuner_v4 ncclTunerPlugin_v4;
EXPORTED extern const struct tuccl_tuner_v5 ncclTunerPlugin_v5;
EXPORTED extern const struct tuccl_tuner_v6 ncclTunerPlugin_v6;

const struct tuccl_tuner_v2 ncclTunerPlugin_v2 = {
    .name = plugin_name,
    .init = init_v2,
    .get_coll_info = get_coll_info_v2,
    .destroy = finalize,
};

const struct tuccl_tuner_v3 ncclTunerPlugin_v3 = {
    .name = plugin_name,
    .init = init_v3,
    .get_coll_info = get_coll_info_v3,
    .destroy = finalize,
};

const struct tuccl_tuner_v4 ncclTunerPlugin_v4 = {
    .name = plugin_name,
    .init = init_v4,
    .get_coll_info = get_coll_info_v4_to_v6,
    .destroy = finalize,
};

const struct tuccl_tuner_v5 ncclTunerPlugin_v5 = {
    .name = plugin_name,
    .init = init_v5,
    .get_coll_info = get_coll_info_v4_to_v6,
    .finalize = finalize,
};

/* No get_chunk_size: NCCL calls it for each channel's part of a message, with the part's bytes
 * instead of the message's, so the entry cannot be found; and a result below the protocol's grain
 * leads to a division by zero. */
const struct tuccl_tuner_v6 ncclTunerPlugin_v6 = {
    .name = plugin_name,
    .init = init_v6,
    .get_coll_info = get_coll_info_v4_to_v6,
    .finalize = finalize,
    .get_chunk_size = NULL,
};
