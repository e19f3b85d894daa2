#include "simulate.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The arrival of a message at a port. Step numbers run over all tiles: tile * steps + step. */
struct event {
    double time_us;
    int64_t number;
    int64_t hop;
};

/* A binary heap, earliest event first: by time, then tile and step, then hop. */
struct queue {
    struct event *events;
    int64_t size;
};

/* State of a step of one tile. */
struct step_state {
    double ready_us;
    double passed_us; /* when the last byte of its message has passed the ports so far */
    int64_t receive;  /* the step that receives its message, or -1 */
    int64_t frees;    /* the send that reuses this receive's FIFO slot, or -1 */
    int64_t waits;    /* number of events that it still waits for */
};

struct simulation {
    const struct tuccl_schedule *schedule;
    struct tuccl_costs costs;
    int64_t tiles;
    int64_t steps; /* of all tiles */
    struct step_state *states;
    int64_t
        *next_in_block; /* by step of the schedule; the last step of a block leads to its first */
    int64_t *runnable;  /* a stack */
    int64_t runnable_count;
    double *port_free_us;
    struct queue queue;
};

static bool is_earlier(const struct event *a, const struct event *b) {
    if (a->time_us != b->time_us)
        return a->time_us < b->time_us;
    if (a->number != b->number)
        return a->number < b->number;
    return a->hop < b->hop;
}

static void push(struct queue *queue, struct event event) {
    int64_t at = queue->size++;
    while (at > 0) {
        int64_t parent = (at - 1) / 2;
        if (!is_earlier(&event, &queue->events[parent]))
            break;
        queue->events[at] = queue->events[parent];
        at = parent;
    }
    queue->events[at] = event;
}

static struct event pop(struct queue *queue) {
    struct event first = queue->events[0];
    struct event last = queue->events[--queue->size];
    int64_t at = 0;
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= queue->size)
            break;
        if (child + 1 < queue->size && is_earlier(&queue->events[child + 1], &queue->events[child]))
            child++;
        if (!is_earlier(&queue->events[child], &last))
            break;
        queue->events[at] = queue->events[child];
        at = child;
    }
    queue->events[at] = last;
    return first;
}

static void link_blocks(struct simulation *s) {
    const struct tuccl_schedule *schedule = s->schedule;
    for (int64_t block = 0; block < schedule->blocks; block++) {
        int64_t first = schedule->block_begin[block], end = schedule->block_begin[block + 1];
        for (int64_t step = first; step < end; step++)
            s->next_in_block[step] = step + 1 < end ? step + 1 : first;
    }
}

static void link_connection(struct simulation *s, int64_t connection, int64_t fifo_slots) {
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
static void link_steps(struct simulation *s, int64_t fifo_slots) {
    const struct tuccl_schedule *schedule = s->schedule;
    for (int64_t number = 0; number < s->steps; number++)
        s->states[number] = (struct step_state){s->costs.handover_us, 0, -1, -1, 0};
    link_blocks(s);
    for (int64_t tile = 0; tile < s->tiles; tile++) {
        struct step_state *states = s->states + tile * schedule->steps;
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

/* One of the events that step `number` waits for happens at `time_us`. */
static void release(struct simulation *s, int64_t number, double time_us) {
    struct step_state *state = &s->states[number];
    if (time_us > state->ready_us)
        state->ready_us = time_us;
    if (--state->waits == 0)
        s->runnable[s->runnable_count++] = number;
}

/* Step `number` is done for its threadblock: releases the steps that wait for it. */
static void finish(struct simulation *s, int64_t number, double done_us) {
    const struct tuccl_schedule *schedule = s->schedule;
    int64_t step = number % schedule->steps, first = number - step;
    double begins_us = done_us + s->costs.handover_us;
    for (int64_t i = schedule->waiting_begin[step]; i < schedule->waiting_begin[step + 1]; i++)
        release(s, first + schedule->waiting[i], begins_us);
    int64_t next = s->next_in_block[step];
    int64_t next_first = next > step ? first : first + schedule->steps;
    if (next_first < s->steps)
        release(s, next_first + next, begins_us);
    if (s->states[number].frees >= 0)
        release(s, s->states[number].frees, done_us);
}

/* A message passes a port. Returns whether this ends its step, and when. */
static bool pass_port(struct simulation *s, struct event event, double *done_us) {
    const struct tuccl_schedule *schedule = s->schedule;
    int64_t step = event.number % schedule->steps;
    int64_t hop = schedule->hop_begin[step] + event.hop;
    struct step_state *state = &s->states[event.number];
    double *free_us = &s->port_free_us[schedule->hop_port[hop]];
    double start_us = *free_us > event.time_us ? *free_us : event.time_us;
    double chunks = schedule->chunks[step];
    double passed_us =
        start_us + chunks * s->costs.wire_bytes_per_chunk * schedule->hop_us_per_byte[hop];
    *free_us = passed_us;
    if (state->passed_us > passed_us)
        passed_us = state->passed_us;
    double copied_us = start_us + chunks * s->costs.copy_us_per_chunk;
    if (copied_us > passed_us)
        passed_us = copied_us;
    state->passed_us = passed_us;
    if (hop + 1 < schedule->hop_begin[step + 1])
        push(&s->queue, (struct event){start_us, event.number, event.hop + 1});
    else
        release(s, state->receive, passed_us + schedule->alpha_us[step]);
    *done_us = passed_us;
    return event.hop == 0;
}

/* Returns the number of finished steps. */
static int64_t run(struct simulation *s, double *makespan_us) {
    const struct tuccl_schedule *schedule = s->schedule;
    int64_t finished = 0;
    for (int64_t number = 0; number < s->steps; number++)
        if (s->states[number].waits == 0)
            s->runnable[s->runnable_count++] = number;
    while (s->runnable_count > 0 || s->queue.size > 0) {
        int64_t number;
        double done_us;
        if (s->runnable_count > 0) {
            number = s->runnable[--s->runnable_count];
            int64_t step = number % schedule->steps;
            double ready_us = s->states[number].ready_us;
            if (schedule->hop_begin[step] < schedule->hop_begin[step + 1]) {
                push(&s->queue, (struct event){ready_us, number, 0});
                continue;
            }
            done_us = ready_us + schedule->chunks[step] * s->costs.copy_us_per_chunk;
        } else {
            struct event event = pop(&s->queue);
            number = event.number;
            if (!pass_port(s, event, &done_us))
                continue;
        }
        finished++;
        if (done_us > *makespan_us)
            *makespan_us = done_us;
        finish(s, number, done_us);
    }
    return finished;
}

static int64_t first_stuck(const struct simulation *s) {
    int64_t number = 0;
    while (s->states[number].waits == 0)
        number++;
    return number;
}

static bool has_memory(struct simulation *s) {
    size_t steps = (size_t)s->steps + 1;
    s->states = calloc(steps, sizeof *s->states);
    s->runnable = calloc(steps, sizeof *s->runnable);
    s->queue.events = calloc(steps, sizeof *s->queue.events);
    s->next_in_block = calloc((size_t)s->schedule->steps + 1, sizeof *s->next_in_block);
    s->port_free_us = calloc((size_t)s->schedule->ports + 1, sizeof *s->port_free_us);
    return s->states && s->runnable && s->queue.events && s->next_in_block && s->port_free_us;
}

int tuccl_simulate(const struct tuccl_schedule *schedule, int64_t tiles, int64_t fifo_slots,
                   const struct tuccl_costs *costs, struct tuccl_simulated *simulated) {
    struct simulation s = {.schedule = schedule, .costs = *costs, .tiles = tiles};
    s.steps = tiles * schedule->steps;
    memset(simulated, 0, sizeof *simulated);
    int outcome = TUCCL_NO_MEMORY;
    if (has_memory(&s)) {
        link_steps(&s, fifo_slots);
        simulated->unfinished = s.steps - run(&s, &simulated->makespan_us);
        outcome = simulated->unfinished ? TUCCL_DEADLOCK : TUCCL_DONE;
        if (outcome == TUCCL_DEADLOCK)
            simulated->stuck = first_stuck(&s);
    }
    free(s.states);
    free(s.runnable);
    free(s.queue.events);
    free(s.next_in_block);
    free(s.port_free_us);
    return outcome;
}
