/* A tuner that chooses by code alone, as aws-ofi-nccl's does, of ABI v3 to v7 (-DABI=N).
 *
 * On two nodes it leaves all to NCCL, else all_reduce of up to 64 KB gets tree with LL and 4
 * channels, more gets nvls with Simple for registered buffers and ring with Simple for others;
 * all_gather gets the cheapest of two estimates. It prints, and logs with arguments. STAND_IN_TUNER
 * is what fails: `init`, `ask`, `crash`, `hang`. */
#include "tuner_abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct context {
    size_t ranks, nodes;
};

static int fails(const char *how) {
    const char *asked = getenv("STAND_IN_TUNER");
    return asked != NULL && strcmp(asked, how) == 0;
}

static int start(size_t ranks, size_t nodes, tuccl_nccl_logger logger, void **context) {
    if (fails("init"))
        return NCCL_INVALID_USAGE;
    struct context *made = calloc(1, sizeof *made);
    if (made == NULL)
        return NCCL_INVALID_USAGE;
    *made = (struct context){ranks, nodes};
    logger(NCCL_LOG_INFO, NCCL_TUNING, __FILE__, __LINE__, "%zu ranks on %zu nodes, %s", ranks,
           nodes, "and more");
    printf("a tuner may print\n");
    fflush(stdout);
    *context = made;
    return NCCL_SUCCESS;
}

static int choose(void *context, int function, size_t bytes, int operations, float **cost,
                  int algorithms, int protocols, int registered, int *nchannels) {
    const struct context *own = context;
    float (*table)[NCCL_PROTOCOLS] = (float (*)[NCCL_PROTOCOLS])cost;
    if (algorithms != NCCL_ALGORITHMS || protocols != NCCL_PROTOCOLS || operations != 1)
        return NCCL_INVALID_USAGE;
    if (fails("ask"))
        return NCCL_INVALID_USAGE;
    if (fails("crash"))
        abort();
    if (fails("hang"))
        sleep(600);
    if (own->nodes == 2)
        return NCCL_SUCCESS;
    if (function == NCCL_FUNC_ALL_REDUCE && bytes <= 65536) {
        table[NCCL_ALGO_TREE][NCCL_PROTO_LL] = 0.0f;
        *nchannels = 4;
    } else if (function == NCCL_FUNC_ALL_REDUCE && registered) {
        table[NCCL_ALGO_NVLS][NCCL_PROTO_SIMPLE] = 0.0f;
    } else if (function == NCCL_FUNC_ALL_REDUCE) {
        table[NCCL_ALGO_RING][NCCL_PROTO_SIMPLE] = 0.0f;
        *nchannels = 999;
    } else if (function == NCCL_FUNC_ALL_GATHER) {
        /* NCCL never has the first for all_gather, which the caller has to say. */
        if (table[NCCL_ALGO_TREE][NCCL_PROTO_LL] >= 0.0f)
            table[NCCL_ALGO_TREE][NCCL_PROTO_LL] = 0.0f;
        table[NCCL_ALGO_RING][NCCL_PROTO_LL] = 7.0f;
        table[NCCL_ALGO_RING][NCCL_PROTO_LL128] = 5.0f;
    }
    return NCCL_SUCCESS;
}

#if ABI < 4
static int ask(void *context, int function, size_t bytes, int operations, float **cost,
               int algorithms, int protocols, int *nchannels) {
    return choose(context, function, bytes, operations, cost, algorithms, protocols, 0, nchannels);
}
#else
#define ask choose
#endif

static int end(void *context) {
    free(context);
    return NCCL_SUCCESS;
}

#if ABI >= 5
static int start_with_domains(void **context, uint64_t communicator, size_t ranks, size_t nodes,
                              tuccl_nccl_logger logger, const struct tuccl_nvl_domains_v5 *domains,
                              void *constants) {
    (void)communicator;
    ((double *)constants)[ABI >= 7 ? 158 : 143] = 1.0; /* The last ones. */
    if ((size_t)domains->domains != nodes || (size_t)domains->max_ranks_per_domain < ranks / nodes)
        return NCCL_INVALID_USAGE;
    return start(ranks, nodes, logger, context);
}
#define INIT start_with_domains
#else
#define INIT start
#endif

#define NAMED(version) ncclTunerPlugin_v##version
#define SYMBOL(version) NAMED(version)
#define TYPED(version) tuccl_tuner_v##version
#define TYPE(version) TYPED(version)
#if ABI == 7
#define MEMBERS 6
#else
#define MEMBERS ABI
#endif

extern const struct TYPE(MEMBERS) SYMBOL(ABI);
const struct TYPE(MEMBERS) SYMBOL(ABI) = {"stand-in", INIT, ask, end
#if ABI >= 6
                                          ,
                                          NULL
#endif
};
