#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "events.h"
#include "steps.h"

struct simulation {
    struct tuccl_steps steps;
    double *passed_us; /* by step of every tile: when the last byte of its message has passed the
                          ports so far */
    double *port_free_us;
    struct tuccl_events queue;
    const struct tuccl_trace *trace; /* or NULL */
};

/* A message passes a port. Returns whether this ends its step, and when. */
static bool pass_port(struct simulation *s, struct tuccl_event event, double *done_us) {
    const struct tuccl_schedule *schedule = s->steps.schedule;
    const struct tuccl_costs *costs = &s->steps.costs;
    int64_t step = event.number % schedule->steps;
    int64_t hop = schedule->hop_begin[step] + event.hop;
    double *free_us = &s->port_free_us[schedule->hop_port[hop]];
    double start_us = *free_us > event.time_us ? *free_us : event.time_us;
    double chunks = schedule->chunks[step];
    double passed_us =
        start_us + chunks * costs->wire_bytes_per_chunk * schedule->hop_us_per_byte[hop];
    *free_us = passed_us;
    if (s->trace) {
        int64_t before = event.number / schedule->steps * schedule->hop_begin[schedule->steps];
        s->trace->hop_begin_us[before + hop] = start_us;
        s->trace->hop_end_us[before + hop] = passed_us;
    }
    if (s->passed_us[event.number] > passed_us)
        passed_us = s->passed_us[event.number];
    double copied_us = start_us + chunks * costs->copy_us_per_chunk;
    if (copied_us > passed_us)
        passed_us = copied_us;
    s->passed_us[event.number] = passed_us;
    if (hop + 1 < schedule->hop_begin[step + 1])
        tuccl_events_push(&s->queue, (struct tuccl_event){start_us, event.number, event.hop + 1});
    else
        tuccl_steps_release(&s->steps, s->steps.states[event.number].receive,
                            passed_us + schedule->alpha_us[step]);
    *done_us = passed_us;
    return event.hop == 0;
}

static void run(struct simulation *s) {
    struct tuccl_steps *steps = &s->steps;
    const struct tuccl_schedule *schedule = steps->schedule;
    while (steps->runnable_count > 0 || s->queue.size > 0) {
        int64_t number;
        double done_us;
        if (steps->runnable_count > 0) {
            number = steps->runnable[--steps->runnable_count];
            int64_t step = number % schedule->steps;
            double ready_us = steps->states[number].ready_us;
            if (schedule->hop_begin[step] < schedule->hop_begin[step + 1]) {
                tuccl_events_push(&s->queue, (struct tuccl_event){ready_us, number, 0});
                continue;
            }
            done_us = ready_us + schedule->chunks[step] * steps->costs.copy_us_per_chunk;
        } else {
            struct tuccl_event event = tuccl_events_pop(&s->queue);
            number = event.number;
            if (!pass_port(s, event, &done_us))
                continue;
        }
        if (s->trace) {
            s->trace->begin_us[number] = steps->states[number].ready_us;
            s->trace->end_us[number] = done_us;
        }
        tuccl_steps_finish(steps, number, done_us);
    }
}

int tuccl_trace_in_turn(const struct tuccl_schedule *schedule, int64_t tiles, int64_t fifo_slots,
                        const struct tuccl_costs *costs, struct tuccl_simulated *simulated,
                        const struct tuccl_trace *trace) {
    struct simulation s;
    memset(&s, 0, sizeof s);
    s.trace = trace;
    memset(simulated, 0, sizeof *simulated);
    int outcome = TUCCL_NO_MEMORY;
    bool begun = tuccl_steps_begin(&s.steps, schedule, tiles, fifo_slots, costs);
    size_t steps = (size_t)s.steps.count + 1;
    s.queue.events = calloc(steps, sizeof *s.queue.events);
    s.passed_us = calloc(steps, sizeof *s.passed_us);
    s.port_free_us = calloc((size_t)schedule->ports + 1, sizeof *s.port_free_us);
    if (begun && s.queue.events && s.passed_us && s.port_free_us) {
        run(&s);
        outcome = tuccl_steps_outcome(&s.steps, simulated);
    }
    tuccl_steps_end(&s.steps);
    free(s.queue.events);
    free(s.passed_us);
    free(s.port_free_us);
    return outcome;
}

int tuccl_simulate_in_turn(const struct tuccl_schedule *schedule, int64_t tiles, int64_t fifo_slots,
                           const struct tuccl_costs *costs, struct tuccl_simulated *simulated) {
    return tuccl_trace_in_turn(schedule, tiles, fifo_slots, costs, simulated, NULL);
}
