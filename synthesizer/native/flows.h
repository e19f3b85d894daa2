/* Messages under way with max-min fair rates over the ports that they cross.
 *
 * Rates come from progressive filling: all rates grow together until a port is full, whose messages
 * keep theirs, and so on. A message that begins or ends changes only rates of messages that share a
 * port with it, directly or through others; only these are filled anew. */
#ifndef TUCCL_FLOWS_H
#define TUCCL_FLOWS_H

#include "events.h"
#include "simulate.h"

#include <stdbool.h>

/* The message that a threadblock sends; it sends one at a time. */
struct tuccl_flow {
    int64_t number; /* of its step: tile * steps + step */
    int64_t step;
    double left_bytes; /* at changed_us */
    double bytes_per_us;
    double changed_us;
    double end_us;
    int64_t place;  /* in the heap of ends */
    int64_t filled; /* the last filling that it took part in */
    bool fixed;     /* whether this filling has found its rate */
};

/* A message at a port, in the list of the port's messages. */
struct tuccl_crossing {
    int64_t previous;
    int64_t next;
};

struct tuccl_flow_port {
    double us_per_byte;
    int64_t first;   /* crossing, or -1 */
    int64_t flows;   /* whose rate is open in this filling */
    double left;     /* share of the port that the others leave */
    int64_t filled;  /* the last filling that it took part in */
    bool is_changed; /* since the last filling */
};

struct tuccl_flows {
    const struct tuccl_schedule *schedule;
    double most_bytes_per_us; /* rate at which a threadblock copies */
    int64_t most_hops;
    int64_t filling;
    int64_t *block_of_step;
    struct tuccl_flow *flows;         /* by threadblock */
    struct tuccl_crossing *crossings; /* by threadblock and hop */
    struct tuccl_flow_port *ports;
    int64_t *ends; /* a heap of threadblocks, the flow that ends soonest first */
    int64_t count;
    int64_t *changed; /* ports */
    int64_t changed_count;
    int64_t *part_ports; /* the connected part that is filled */
    int64_t part_port_count;
    int64_t *part_flows;
    int64_t part_flow_count;
    struct tuccl_events levels; /* of the part's ports */
};

/* Returns whether there was memory; tuccl_flows_end() frees it in either case. */
bool tuccl_flows_begin(struct tuccl_flows *flows, const struct tuccl_schedule *schedule,
                       const struct tuccl_costs *costs);

void tuccl_flows_end(struct tuccl_flows *flows);

/* Step `number` sends `bytes`, which are more than none. It has no rate before the next filling. */
void tuccl_flows_add(struct tuccl_flows *flows, int64_t number, double bytes, double now_us);

/* Returns the flow that ends soonest, by the rates of the last filling; NULL: there is none. */
const struct tuccl_flow *tuccl_flows_soonest(const struct tuccl_flows *flows);

/* Takes away the flow that ends soonest. */
void tuccl_flows_remove_soonest(struct tuccl_flows *flows);

/* Sets the rates for all that has changed since the last filling. */
void tuccl_flows_fill(struct tuccl_flows *flows, double now_us);

#endif
