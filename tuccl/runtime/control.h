/* TUCCL_CONTROL: the plugin during a search. Each call's configuration comes from a control block
 * instead of a bundle, and the plugin reports there whether it was forced. */
#ifndef TUCCL_CONTROL_H
#define TUCCL_CONTROL_H

#include "tuner_abi.h"

#include <stdbool.h>
#include <stddef.h>

struct tuccl_control;

/* A call as NCCL put it. `cost` is NULL in ABI v2. */
struct tuccl_question {
    int function;
    size_t bytes;
    const float *cost;
    int algorithms;
    int protocols;
    int nchannels;
};

/* Maps the block at `path` and leaves the mark that NCCL loaded the plugin. NULL with the reason in
 * `why` when the file is no control block of this version. */
struct tuccl_control *tuccl_control_open(const char *path, int abi, size_t nodes, char *why,
                                         size_t why_bytes);

void tuccl_control_close(struct tuccl_control *control);

/* Records NCCL's question and returns whether an override is requested for it. */
bool tuccl_control_ask(struct tuccl_control *control, const struct tuccl_question *question,
                       struct tuccl_choice *override);

/* Counts the override as forced or as refused. */
void tuccl_control_answer(struct tuccl_control *control, bool forced);

/* Counts a question about the chunk size of a call's part, and whether the answer changes the
 * number of chunks that the part is cut into. */
void tuccl_control_count_chunk(struct tuccl_control *control, bool changed);

#endif
