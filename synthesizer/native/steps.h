/* The steps of a schedule and their waits, which every model of sharing has in common. */
#ifndef TUCCL_STEPS_H
#define TUCCL_STEPS_H

#include "simulate.h"

#include <stdbool.h>

/* State of a step of one tile. */
struct tuccl_step_state {
    double ready_us;
    int64_t receive; /* the step that receives its message, or -1 */
    int64_t frees;   /* the send that reuses this receive's FIFO slot, or -1 */
    int64_t waits;   /* number of events that it still waits for */
};

/* Step numbers run over all tiles: tile * steps + step. */
struct tuccl_steps {
    const struct tuccl_schedule *schedule;
    struct tuccl_costs costs;
    int64_t tiles;
    int64_t count; /* of all tiles */
    int64_t finished;
    double makespan_us;
    struct tuccl_step_state *states;
    int64_t
        *next_in_block; /* by step of the schedule; the last step of a block leads to its first */
    int64_t *runnable;  /* a stack */
    int64_t runnable_count;
};

/* Counts the waits of each step, and makes those without waits runnable. Returns whether there was
 * memory; tuccl_steps_end() frees it in either case. */
bool tuccl_steps_begin(struct tuccl_steps *steps, const struct tuccl_schedule *schedule,
                       int64_t tiles, int64_t fifo_slots, const struct tuccl_costs *costs);

void tuccl_steps_end(struct tuccl_steps *steps);

/* One of the events that step `number` waits for happens at `time_us`. */
void tuccl_steps_release(struct tuccl_steps *steps, int64_t number, double time_us);

/* Step `number` is done for its threadblock: releases the steps that wait for it. */
void tuccl_steps_finish(struct tuccl_steps *steps, int64_t number, double done_us);

/* Fills in what the run came to. */
int tuccl_steps_outcome(const struct tuccl_steps *steps, struct tuccl_simulated *simulated);

#endif
