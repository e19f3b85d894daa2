/* The plugin's interface to NCCL: one exported structure per version of the tuner ABI.
 *
 * NCCL fails a collective whose tuner returns an error, so every get_coll_info returns success.
 * A choice is applied by writing cost 0 over its entry of NCCL's cost table, and only where NCCL
 * itself says that the entry can run (cost not -1): NCCL up to 2.30 selects such an entry without
 * checking it again. Where it cannot run, nothing is touched, the channel count included. */
#include "control.h"
#include "plugin_init.h"
#include "request.h"
#include "selection.h"
#include "tuner_abi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const algorithm_names[NCCL_ALGORITHMS] = {
    "Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"};
static const char *const protocol_names[NCCL_PROTOCOLS] = {"LL", "LL128", "Simple"};
static const char *const function_names[TUCCL_FUNCTIONS] = {"broadcast", "reduce", "all_gather",
                                                            "reduce_scatter", "all_reduce"};

/* What NCCL asks. v2 has no cost table: its tuner sets `algorithm` and `protocol` instead. */
struct call {
    int function;
    size_t bytes;
    int pipelined;
    float *cost;
    int algorithms, protocols;
    int *algorithm, *protocol;
    int *nchannels;
    bool without_pat;
};

static void describe_costs(char *text, size_t text_bytes, const struct call *call) {
    size_t used = 0;
    text[0] = '\0';
    for (int a = 0; a < call->algorithms && a < NCCL_ALGORITHMS; a++)
        for (int p = 0; p < call->protocols && p < NCCL_PROTOCOLS; p++) {
            float time_us = call->cost[a * call->protocols + p];
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

/* Makes NCCL run a choice; false where it cannot run, and then nothing is touched. */
static bool force(const struct tuccl_choice *choice, const struct call *call) {
    if (call->cost == NULL) {
        if (!runs_in_v2(call->function, choice))
            return false;
        *call->algorithm = choice->algorithm;
        *call->protocol = choice->protocol;
    } else {
        if (choice->algorithm >= call->algorithms || choice->protocol >= call->protocols)
            return false;
        float *entry = &call->cost[choice->algorithm * call->protocols + choice->protocol];
        if (!(*entry >= 0.0f) || (call->without_pat && choice->algorithm == NCCL_ALGO_PAT))
            return false;
        *entry = 0.0f;
    }
    if (choice->nchannels > 0 && call->nchannels != NULL)
        *call->nchannels = choice->nchannels;
    return true;
}

static void explain_no_entry(const struct tuccl_selection *selection, const struct call *call) {
    char operation[32];
    if (call->function >= 0 && call->function < TUCCL_FUNCTIONS)
        snprintf(operation, sizeof operation, "%s", function_names[call->function]);
    else
        snprintf(operation, sizeof operation, "function %d", call->function);
    selection->explain(NCCL_LOG_INFO, NCCL_TUNING, "tuccl", __LINE__,
                       "TuCCL: %s of %zu bytes: no entry, NCCL decides", operation, call->bytes);
}

static void explain_left_out(const struct tuccl_selection *selection, const struct call *call) {
    selection->explain(
        NCCL_LOG_INFO, NCCL_TUNING, "tuccl", __LINE__,
        "TuCCL: %s of %zu bytes: left out by the check at start or the guard, NCCL decides",
        function_names[call->function], call->bytes);
}

static bool force_explained(const struct tuccl_selection *selection, const struct call *call,
                            const struct tuccl_choice *choice) {
    char before[768] = "", after[768] = "";
    bool with_costs = call->cost != NULL;
    if (with_costs)
        describe_costs(before, sizeof before, call);
    bool applied = force(choice, call);
    char chunks[48] = "";
    if (choice->chunk_log2 > 0)
        snprintf(chunks, sizeof chunks, " in chunks of %llu bytes", 1ULL << choice->chunk_log2);
    if (with_costs)
        describe_costs(after, sizeof after, call);
    selection->explain(
        NCCL_LOG_INFO, NCCL_TUNING, "tuccl", __LINE__,
        "TuCCL: %s of %zu bytes: entry %llu..%llu wants %s/%s%s on %u channels (0: NCCL's count; "
        "tuned %.1f us, default %.1f us): %s%s%s%s%s%s",
        function_names[call->function], call->bytes, (unsigned long long)choice->min_bytes,
        (unsigned long long)choice->max_bytes, algorithm_names[choice->algorithm],
        protocol_names[choice->protocol], chunks, choice->nchannels,
        (double)choice->builtin_time_us, (double)choice->default_time_us,
        applied ? "applied" : "cannot run here, NCCL decides", with_costs ? "; costs before [" : "",
        before, with_costs ? "] after [" : "", after, with_costs ? "]" : "");
    return applied;
}

/* The choice of the communicator's class, if the estimates tell it, else that of its shape. */
static const struct tuccl_choice *choice_of_call(const struct tuccl_selection *selection,
                                                 const struct call *call) {
    if (call->algorithms > NCCL_ALGO_RING && call->protocols > NCCL_PROTO_SIMPLE) {
        float estimate_us = call->cost[NCCL_ALGO_RING * call->protocols + NCCL_PROTO_SIMPLE];
        const struct tuccl_choice *placed = tuccl_selection_find_placed(
            selection, call->function, call->bytes, (double)estimate_us, call->pipelined);
        if (placed != NULL)
            return placed;
    }
    return tuccl_selection_find(selection, call->function, call->bytes);
}

static uint32_t word_of(const struct tuccl_selection *selection, const struct call *call) {
    return selection->request != NULL
               ? tuccl_word_of_call(selection->request, (uint32_t)call->function, call->bytes)
               : TUCCL_REQUEST_TABLE;
}

static bool names_setting(uint32_t word) {
    return (word & 0xFF) < NCCL_ALGORITHMS;
}

/* A setting that the executor asks for in the job, on all ranks alike. */
static const struct tuccl_choice *apply_learned(const struct tuccl_selection *selection,
                                                const struct call *call, uint32_t word,
                                                struct tuccl_choice *requested) {
    bool forced = tuccl_requested_choice(word, requested) &&
                  tuccl_chunk_is_sound(requested->algorithm, requested->chunk_log2) &&
                  requested->protocol < NCCL_PROTOCOLS && force(requested, call);
    if (!forced)
        __atomic_fetch_add(&selection->request->refused, 1, __ATOMIC_RELAXED);
    if (selection->explain != NULL)
        selection->explain(
            NCCL_LOG_INFO, NCCL_TUNING, "tuccl", __LINE__,
            "TuCCL: %s of %zu bytes: the job tries or has learned %s/%s on %u "
            "channels (0: NCCL's count): %s",
            function_names[call->function], call->bytes, algorithm_names[requested->algorithm],
            protocol_names[requested->protocol % NCCL_PROTOCOLS], requested->nchannels,
            forced ? "applied" : "cannot run here, NCCL decides");
    if (!forced)
        return NULL;
    tuccl_note_answer((uint32_t)call->function | TUCCL_ANSWERED_LEARNED);
    return requested;
}

static bool has_answer(int function) {
    return function >= 0 && function < TUCCL_FUNCTIONS;
}

/* A rail obeys the executor's request, a measurement its control block, a job its table. Returns
 * the choice that NCCL will run, NULL where it decides; `requested` has room for one. */
static const struct tuccl_choice *apply(const struct tuccl_selection *selection,
                                        const struct call *call, struct tuccl_choice *requested) {
    if (selection->request != NULL && selection->request->nodes != 0) {
        uint64_t word = __atomic_load_n(&selection->request->word, __ATOMIC_SEQ_CST);
        return tuccl_requested_choice(word, requested) && force(requested, call) ? requested : NULL;
    }
    if (selection->control != NULL) {
        int count = call->cost != NULL && call->nchannels != NULL ? *call->nchannels : 0;
        struct tuccl_question question = {call->function,   call->bytes,     call->cost,
                                          call->algorithms, call->protocols, count};
        if (!tuccl_control_ask(selection->control, &question, requested))
            return NULL;
        bool forced = force(requested, call);
        tuccl_control_answer(selection->control, forced);
        return forced ? requested : NULL;
    }
    uint32_t word = word_of(selection, call);
    if (names_setting(word) && has_answer(call->function))
        return apply_learned(selection, call, word, requested);
    const struct tuccl_choice *choice = choice_of_call(selection, call);
    bool left_out = choice != NULL && (word & 0xFF) == TUCCL_REQUEST_NCCL;
    if (left_out && selection->explain != NULL)
        explain_left_out(selection, call);
    if (choice == NULL && selection->explain != NULL)
        explain_no_entry(selection, call);
    if (choice == NULL || left_out)
        return NULL;
    bool applied =
        selection->explain != NULL ? force_explained(selection, call, choice) : force(choice, call);
    if (!applied)
        return NULL;
    tuccl_note_answer((uint32_t)call->function);
    return choice;
}

static int answer(const struct tuccl_selection *selection, const struct call *call) {
    struct tuccl_choice requested;
    const struct tuccl_choice *applied = apply(selection, call, &requested);
    uint32_t word = 0;
    if (applied != NULL && applied->chunk_log2 > 0)
        word = applied->algorithm | (uint32_t)applied->protocol << 8 |
               (uint32_t)applied->chunk_log2 << 16;
    if (has_answer(call->function))
        atomic_store_explicit(&selection->answers->of_function[call->function], word,
                              memory_order_relaxed);
    return NCCL_SUCCESS;
}

/* What NCCL aligns chunks to; one that is smaller leads to a division by zero there (NCCL 2.30
 * src/include/device.h). */
static const size_t grain_bytes[NCCL_PROTOCOLS] = {16, 1920, 512};

/* The chunk size that the last call of a function was answered with, if NCCL runs it as answered;
 * else 0. */
static size_t answered_chunk(const struct tuccl_selection *selection, int function, int algorithm,
                             int protocol) {
    uint32_t word =
        atomic_load_explicit(&selection->answers->of_function[function], memory_order_relaxed);
    if (word == 0 || (int)(word & 0xFF) != algorithm || (int)(word >> 8 & 0xFF) != protocol)
        return 0;
    size_t grain = grain_bytes[protocol];
    return ((size_t)1 << (word >> 16)) / grain * grain;
}

/* NCCL asks about each channel's part of a call, with the part's bytes, after it has asked about
 * the call. What it says before is the size that it takes by itself, which fits into the protocol's
 * buffer; so does a smaller one, and no larger one is answered. */
static int get_chunk_size(void *context, int function, size_t bytes, int algorithm, int protocol,
                          int nchannels, size_t *chunk_bytes) {
    (void)nchannels;
    const struct tuccl_selection *selection = context;
    if (selection == NULL || chunk_bytes == NULL || !has_answer(function))
        return NCCL_SUCCESS;
    size_t wanted = answered_chunk(selection, function, algorithm, protocol);
    bool is_smaller = wanted > 0 && wanted < *chunk_bytes;
    if (is_smaller)
        *chunk_bytes = wanted;
    bool in_parts = algorithm == NCCL_ALGO_RING && function != NCCL_FUNC_BROADCAST &&
                    function != NCCL_FUNC_REDUCE;
    if (selection->control != NULL)
        tuccl_control_count_chunk(selection->control,
                                  is_smaller && wanted < bytes / (in_parts ? selection->ranks : 1));
    return NCCL_SUCCESS;
}

static int get_coll_info_v4_to_v7(void *context, int function, size_t bytes,
                                  int pipelined_operations, float **cost, int algorithms,
                                  int protocols, int registered_buffers, int *nchannels) {
    (void)registered_buffers;
    const struct tuccl_selection *selection = context;
    struct call call = {.function = function,
                        .bytes = bytes,
                        .pipelined = pipelined_operations,
                        .cost = (float *)(void *)cost,
                        .algorithms = algorithms,
                        .protocols = protocols,
                        .nchannels = nchannels};
    if (selection == NULL || cost == NULL)
        return NCCL_SUCCESS;
    call.without_pat = selection->pat_adds_averages_up && function == NCCL_FUNC_REDUCE_SCATTER;
    return answer(selection, &call);
}

static int get_coll_info_v3(void *context, int function, size_t bytes, int pipelined_operations,
                            float **cost, int algorithms, int protocols, int *nchannels) {
    return get_coll_info_v4_to_v7(context, function, bytes, pipelined_operations, cost, algorithms,
                                  protocols, 0, nchannels);
}

static int get_coll_info_v2(void *context, int function, size_t bytes, int collnet_support,
                            int nvls_support, int pipelined_operations, int *algorithm,
                            int *protocol, int *nchannels) {
    (void)collnet_support;
    (void)nvls_support;
    (void)pipelined_operations;
    struct call call = {.function = function,
                        .bytes = bytes,
                        .algorithm = algorithm,
                        .protocol = protocol,
                        .nchannels = nchannels};
    bool can_answer = context != NULL && algorithm != NULL && protocol != NULL;
    return can_answer ? answer(context, &call) : NCCL_SUCCESS;
}

/* Ranks per node as the table counts them: 0 when nodes differ. */
static size_t ranks_per_node(size_t ranks, size_t nodes,
                             const struct tuccl_nvl_domains_v5 *domains) {
    if (domains != NULL && domains->max_ranks_per_domain > 0)
        return domains->min_ranks_per_domain == domains->max_ranks_per_domain
                   ? (size_t)domains->max_ranks_per_domain
                   : 0;
    return nodes > 0 && ranks % nodes == 0 ? ranks / nodes : 0;
}

static int init(void **context, int abi, size_t ranks, size_t nodes,
                const struct tuccl_nvl_domains_v5 *domains, tuccl_nccl_logger logger) {
    if (context == NULL)
        return NCCL_SUCCESS;
    struct tuccl_selection *selection;
    size_t per_node = ranks_per_node(ranks, nodes, domains);
    int result = tuccl_plugin_init(&selection, abi, ranks, nodes, per_node, logger);
    *context = selection;
    return result;
}

/* Later versions mark in the cost table what NCCL_ALGO and NCCL_PROTO exclude; v2 has no table. */
static int init_v2(size_t ranks, size_t nodes, tuccl_nccl_logger logger, void **context) {
    int result = init(context, 2, ranks, nodes, NULL, logger);
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

static int init_v3(size_t ranks, size_t nodes, tuccl_nccl_logger logger, void **context) {
    return init(context, 3, ranks, nodes, NULL, logger);
}

static int init_v4(size_t ranks, size_t nodes, tuccl_nccl_logger logger, void **context) {
    return init(context, 4, ranks, nodes, NULL, logger);
}

/* `constants` is unchanged: the table holds measurements, not a better model. */
static int init_v5(void **context, uint64_t communicator, size_t ranks, size_t nodes,
                   tuccl_nccl_logger logger, const struct tuccl_nvl_domains_v5 *domains,
                   void *constants) {
    (void)communicator;
    (void)constants;
    return init(context, 5, ranks, nodes, domains, logger);
}

static int init_v6(void **context, uint64_t communicator, size_t ranks, size_t nodes,
                   tuccl_nccl_logger logger, const struct tuccl_nvl_domains_v5 *domains,
                   void *constants) {
    (void)communicator;
    (void)constants;
    return init(context, 6, ranks, nodes, domains, logger);
}

static int init_v7(void **context, uint64_t communicator, size_t ranks, size_t nodes,
                   tuccl_nccl_logger logger, const struct tuccl_nvl_domains_v5 *domains,
                   void *constants) {
    (void)communicator;
    (void)constants;
    return init(context, 7, ranks, nodes, domains, logger);
}

static int finalize(void *context) {
    tuccl_selection_free(context);
    return NCCL_SUCCESS;
}

static const char plugin_name[] = "TuCCL";

#define EXPORTED __attribute__((visibility("default")))

EXPORTED extern const struct tuccl_tuner_v2 ncclTunerPlugin_v2;
EXPORTED extern const struct tuccl_tuner_v3 ncclTunerPlugin_v3;
EXPORTED extern const struct tuccl_tuner_v4 ncclTunerPlugin_v4;
EXPORTED extern const struct tuccl_tuner_v5 ncclTunerPlugin_v5;
EXPORTED extern const struct tuccl_tuner_v6 ncclTunerPlugin_v6;
EXPORTED extern const struct tuccl_tuner_v6 ncclTunerPlugin_v7;

const struct tuccl_tuner_v2 ncclTunerPlugin_v2 = {plugin_name, init_v2, get_coll_info_v2, finalize};
const struct tuccl_tuner_v3 ncclTunerPlugin_v3 = {plugin_name, init_v3, get_coll_info_v3, finalize};
const struct tuccl_tuner_v4 ncclTunerPlugin_v4 = {plugin_name, init_v4, get_coll_info_v4_to_v7,
                                                  finalize};
const struct tuccl_tuner_v5 ncclTunerPlugin_v5 = {plugin_name, init_v5, get_coll_info_v4_to_v7,
                                                  finalize};
const struct tuccl_tuner_v6 ncclTunerPlugin_v6 = {plugin_name, init_v6, get_coll_info_v4_to_v7,
                                                  finalize, get_chunk_size};
const struct tuccl_tuner_v6 ncclTunerPlugin_v7 = {plugin_name, init_v7, get_coll_info_v4_to_v7,
                                                  finalize, get_chunk_size};
