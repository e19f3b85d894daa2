#include "explain.h"
#include "tuner_abi.h"

#include <stdio.h>

static const char *const algorithm_names[NCCL_ALGORITHMS] = {
    "Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"};
static const char *const protocol_names[NCCL_PROTOCOLS] = {"LL", "LL128", "Simple"};
static const char *const function_names[TUCCL_FUNCTIONS] = {"broadcast", "reduce", "all_gather",
                                                            "reduce_scatter", "all_reduce"};

void tuccl_describe_costs(char *text, size_t text_bytes, const float *cost, int algorithms,
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

void tuccl_explain_no_entry(const struct tuccl_selection *selection, int function, size_t bytes) {
    char operation[32];
    if (function >= 0 && function < TUCCL_FUNCTIONS)
        snprintf(operation, sizeof operation, "%s", function_names[function]);
    else
        snprintf(operation, sizeof operation, "function %d", function);
    selection->explain(NCCL_LOG_INFO, NCCL_TUNING, "tuccl", __LINE__,
                       "TuCCL: %s of %zu bytes: no entry, NCCL decides", operation, bytes);
}

void tuccl_explain_choice(const struct tuccl_selection *selection, int function, size_t bytes,
                          const struct tuccl_choice *choice, bool applied, const char *costs_before,
                          const char *costs_after) {
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
