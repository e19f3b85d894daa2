#include "simulate.h"

#include <stdlib.h>
#include <string.h>

#include "events.h"
#include "flows.h"
#include "steps.h"

/* Events that differ by less are one event, so that rounding does not multiply fillings. */
#define AT_ONCE (1 + 1e-10)

struct simulation {
    struct tuccl_steps steps;
    struct tuccl_flows flows;
    struct tuccl_events starts; /* of messages */
};

/* Ends the steps that take no port, and queues the messages that can start. */
static void settle(struct simulation *s) {
    struct tuccl_steps *steps = &s->steps;
    const struct tuccl_schedule *schedule = steps->schedule;
    while (steps->runnable_count > 0) {
        int64_t number = steps->runnable[--steps->runnable_count];
        int64_t step = number % schedule->steps;
        double ready_us = steps->states[number].ready_us;
        if (schedule->hop_begin[step] < schedule->hop_begin[step + 1])
            tuccl_events_push(&s->starts, (struct tuccl_event){ready_us, number, 0});
        else
            tuccl_steps_finish(steps, number,
                               ready_us + schedule->chunks[step] * steps->costs.copy_us_per_chunk);
    }
}

/* The last byte of a step's message has passed all ports. */
static void pass(struct simulation *s, int64_t number, double now_us) {
    struct tuccl_steps *steps = &s->steps;
    int64_t step = number % steps->schedule->steps;
    tuccl_steps_release(steps, steps->states[number].receive,
                        now_us + steps->schedule->alpha_us[step]);
    tuccl_steps_finish(steps, number, now_us);
}

static void start(struct simulation *s, int64_t number, double now_us) {
    const struct tuccl_costs *costs = &s->steps.costs;
    double chunks = s->steps.schedule->chunks[number % s->steps.schedule->steps];
    double bytes = chunks * costs->wire_bytes_per_chunk;
    if (bytes > 0)
        tuccl_flows_add(&s->flows, number, bytes, now_us);
    else
        pass(s, number, now_us + chunks * costs->copy_us_per_chunk);
}

static void run(struct simulation *s) {
    for (;;) {
        settle(s);
        const struct tuccl_flow *flow = tuccl_flows_soonest(&s->flows);
        if (!flow && s->starts.size == 0)
            return;
        double now_us = flow ? flow->end_us : s->starts.events[0].time_us;
        if (s->starts.size && s->starts.events[0].time_us < now_us)
            now_us = s->starts.events[0].time_us;
        /* The rates between two events are those of all that begins and ends at the first. */
        bool more = true;
        while (more) {
            more = false;
            while ((flow = tuccl_flows_soonest(&s->flows)) && flow->end_us <= now_us * AT_ONCE) {
                int64_t number = flow->number;
                tuccl_flows_remove_soonest(&s->flows);
                pass(s, number, now_us);
                more = true;
            }
            settle(s);
            while (s->starts.size && s->starts.events[0].time_us <= now_us * AT_ONCE) {
                start(s, tuccl_events_pop(&s->starts).number, now_us);
                more = true;
            }
            settle(s);
        }
        tuccl_flows_fill(&s->flows, now_us);
    }
}

int tuccl_simulate_fair(const struct tuccl_schedule *schedule, int64_t tiles, int64_t fifo_slots,
                        const struct tuccl_costs *costs, struct tuccl_simulated *simulated) {
    struct simulation s;
    memset(&s, 0, sizeof s);
    memset(simulated, 0, sizeof *simulated);
    int outcome = TUCCL_NO_MEMORY;
    bool begun = tuccl_steps_begin(&s.steps, schedule, tiles, fifo_slots, costs);
    bool flowing = tuccl_flows_begin(&s.flows, schedule, costs);
    s.starts.events = calloc((size_t)s.steps.count + 1, sizeof *s.starts.events);
    if (begun && flowing && s.starts.events) {
        run(&s);
        outcome = tuccl_steps_outcome(&s.steps, simulated);
    }
    tuccl_steps_end(&s.steps);
    tuccl_flows_end(&s.flows);
    free(s.starts.events);
    return outcome;
}
