#include "steps.h"

#include <stdlib.h>

static void link_blocks(struct tuccl_steps *s) {
    const struct tuccl_schedule *schedule = s->schedule;
    for (int64_t block = 0; block < schedule->blocks; block++) {
        int64_t first = schedule->block_begin[block], end = schedule->block_begin[block + 1];
        for (int64_t step = first; step < end; step++)
            s->next_in_block[step] = step + 1 < end ? step + 1 : first;
    }
}

static void link_connection(struct tuccl_steps *s, int64_t connection, int64_t fifo_slots) {
    const struct tuccl_schedule *schedule = s->schedule;
    int64_t begin = schedule->connection_begin[connection];
    int64_t messages = schedule->connection_begin[connection + 1] - begin;
    const int64_t *sends = schedule->sends + begin, *receives = schedule->receives + begin;
    for (int64_t tile = 0; tile < s->tiles; tile++)
        for (int64_t message = 0; message < messages; message++) {
            int64_t send = tile * schedule->steps + sends[message];
            int64_t receive = tile * schedule->steps + receives[message];
            s->states[send].receive = receive;
            s->states[receive].waits++;
            int64_t later = tile * messages + message;
            if (fifo_slots >= s->tiles * messages - later)
                continue;
            later += fifo_slots;
            int64_t freed = later / messages * schedule->steps + sends[later % messages];
            s->states[receive].frees = freed;
            s->states[freed].waits++;
        }
}

/* Counts the waits of each step and links it to the steps that wait for it. */
static void link_steps(struct tuccl_steps *s, int64_t fifo_slots) {
    const struct tuccl_schedule *schedule = s->schedule;
    for (int64_t number = 0; number < s->count; number++)
        s->states[number] = (struct tuccl_step_state){s->costs.handover_us, -1, -1, 0};
    link_blocks(s);
    for (int64_t tile = 0; tile < s->tiles; tile++) {
        struct tuccl_step_state *states = s->states + tile * schedule->steps;
        for (int64_t i = 0; i < schedule->waiting_begin[schedule->steps]; i++)
            states[schedule->waiting[i]].waits++;
        for (int64_t block = 0; block < schedule->blocks; block++)
            for (int64_t step = schedule->block_begin[block];
                 step < schedule->block_begin[block + 1]; step++)
                states[step].waits += tile > 0 || step > schedule->block_begin[block];
    }
    for (int64_t connection = 0; connection < schedule->connections; connection++)
        link_connection(s, connection, fifo_slots);
}

bool tuccl_steps_begin(struct tuccl_steps *s, const struct tuccl_schedule *schedule, int64_t tiles,
                       int64_t fifo_slots, const struct tuccl_costs *costs) {
    *s = (struct tuccl_steps){.schedule = schedule, .costs = *costs, .tiles = tiles};
    s->count = tiles * schedule->steps;
    size_t steps = (size_t)s->count + 1;
    s->states = calloc(steps, sizeof *s->states);
    s->runnable = calloc(steps, sizeof *s->runnable);
    s->next_in_block = calloc((size_t)schedule->steps + 1, sizeof *s->next_in_block);
    if (!s->states || !s->runnable || !s->next_in_block)
        return false;
    link_steps(s, fifo_slots);
    for (int64_t number = 0; number < s->count; number++)
        if (s->states[number].waits == 0)
            s->runnable[s->runnable_count++] = number;
    return true;
}

void tuccl_steps_end(struct tuccl_steps *s) {
    free(s->states);
    free(s->runnable);
    free(s->next_in_block);
}

void tuccl_steps_release(struct tuccl_steps *s, int64_t number, double time_us) {
    struct tuccl_step_state *state = &s->states[number];
    if (time_us > state->ready_us)
        state->ready_us = time_us;
    if (--state->waits == 0)
        s->runnable[s->runnable_count++] = number;
}

void tuccl_steps_finish(struct tuccl_steps *s, int64_t number, double done_us) {
    const struct tuccl_schedule *schedule = s->schedule;
    int64_t step = number % schedule->steps, first = number - step;
    double begins_us = done_us + s->costs.handover_us;
    s->finished++;
    if (done_us > s->makespan_us)
        s->makespan_us = done_us;
    for (int64_t i = schedule->waiting_begin[step]; i < schedule->waiting_begin[step + 1]; i++)
        tuccl_steps_release(s, first + schedule->waiting[i], begins_us);
    int64_t next = s->next_in_block[step];
    int64_t next_first = next > step ? first : first + schedule->steps;
    if (next_first < s->count)
        tuccl_steps_release(s, next_first + next, begins_us);
    if (s->states[number].frees >= 0)
        tuccl_steps_release(s, s->states[number].frees, done_us);
}

int tuccl_steps_outcome(const struct tuccl_steps *s, struct tuccl_simulated *simulated) {
    simulated->makespan_us = s->makespan_us;
    simulated->unfinished = s->count - s->finished;
    if (simulated->unfinished == 0)
        return TUCCL_DONE;
    while (s->states[simulated->stuck].waits == 0)
        simulated->stuck++;
    return TUCCL_DEADLOCK;
}
