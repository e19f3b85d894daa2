#include "flows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rates and levels that differ by less are equal: sums in another order differ by as much. */
#define EQUAL (1 + 1e-12)

static int64_t hops_of(const struct tuccl_flows *f, int64_t step) {
    return f->schedule->hop_begin[step + 1] - f->schedule->hop_begin[step];
}

static int64_t port_of(const struct tuccl_flows *f, int64_t step, int64_t hop) {
    return f->schedule->hop_port[f->schedule->hop_begin[step] + hop];
}

bool tuccl_flows_begin(struct tuccl_flows *f, const struct tuccl_schedule *schedule,
                       const struct tuccl_costs *costs) {
    *f = (struct tuccl_flows){.schedule = schedule};
    double copy_us = costs->copy_us_per_chunk;
    f->most_bytes_per_us = copy_us > 0 ? costs->wire_bytes_per_chunk / copy_us : INFINITY;
    for (int64_t step = 0; step < schedule->steps; step++)
        if (hops_of(f, step) > f->most_hops)
            f->most_hops = hops_of(f, step);
    size_t blocks = (size_t)schedule->blocks + 1, ports = (size_t)schedule->ports + 1;
    f->block_of_step = calloc((size_t)schedule->steps + 1, sizeof *f->block_of_step);
    f->flows = calloc(blocks, sizeof *f->flows);
    f->crossings = calloc(blocks * ((size_t)f->most_hops + 1), sizeof *f->crossings);
    f->ports = calloc(ports, sizeof *f->ports);
    f->ends = calloc(blocks, sizeof *f->ends);
    f->changed = calloc(ports, sizeof *f->changed);
    f->part_ports = calloc(ports, sizeof *f->part_ports);
    f->part_flows = calloc(blocks, sizeof *f->part_flows);
    f->levels.events = calloc(ports, sizeof *f->levels.events);
    if (!f->block_of_step || !f->flows || !f->crossings || !f->ports || !f->ends || !f->changed ||
        !f->part_ports || !f->part_flows || !f->levels.events)
        return false;
    for (int64_t block = 0; block < schedule->blocks; block++)
        for (int64_t step = schedule->block_begin[block]; step < schedule->block_begin[block + 1];
             step++)
            f->block_of_step[step] = block;
    for (int64_t port = 0; port < schedule->ports; port++)
        f->ports[port].first = -1;
    for (int64_t hop = 0; hop < schedule->hop_begin[schedule->steps]; hop++)
        f->ports[schedule->hop_port[hop]].us_per_byte = schedule->hop_us_per_byte[hop];
    return true;
}

void tuccl_flows_end(struct tuccl_flows *f) {
    free(f->block_of_step);
    free(f->flows);
    free(f->crossings);
    free(f->ports);
    free(f->ends);
    free(f->changed);
    free(f->part_ports);
    free(f->part_flows);
    free(f->levels.events);
}

/* The heap of ends. */

static bool ends_sooner(const struct tuccl_flow *a, const struct tuccl_flow *b) {
    return a->end_us != b->end_us ? a->end_us < b->end_us : a->number < b->number;
}

static void put(struct tuccl_flows *f, int64_t place, int64_t block) {
    f->ends[place] = block;
    f->flows[block].place = place;
}

/* Moves a flow to where its end belongs. */
static void sift(struct tuccl_flows *f, int64_t block) {
    const struct tuccl_flow *flow = &f->flows[block];
    int64_t at = flow->place;
    for (; at > 0; at = (at - 1) / 2) {
        int64_t parent = f->ends[(at - 1) / 2];
        if (!ends_sooner(flow, &f->flows[parent]))
            break;
        put(f, at, parent);
    }
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= f->count)
            break;
        if (child + 1 < f->count &&
            ends_sooner(&f->flows[f->ends[child + 1]], &f->flows[f->ends[child]]))
            child++;
        if (!ends_sooner(&f->flows[f->ends[child]], flow))
            break;
        put(f, at, f->ends[child]);
        at = child;
    }
    put(f, at, block);
}

static void mark_changed(struct tuccl_flows *f, int64_t step) {
    for (int64_t hop = 0; hop < hops_of(f, step); hop++) {
        struct tuccl_flow_port *port = &f->ports[port_of(f, step, hop)];
        if (!port->is_changed)
            f->changed[f->changed_count++] = port - f->ports;
        port->is_changed = true;
    }
}

void tuccl_flows_add(struct tuccl_flows *f, int64_t number, double bytes, double now_us) {
    int64_t step = number % f->schedule->steps, block = f->block_of_step[step];
    f->flows[block] = (struct tuccl_flow){.number = number,
                                          .step = step,
                                          .left_bytes = bytes,
                                          .changed_us = now_us,
                                          .end_us = INFINITY,
                                          .place = f->count++};
    sift(f, block);
    for (int64_t hop = 0; hop < hops_of(f, step); hop++) {
        struct tuccl_flow_port *port = &f->ports[port_of(f, step, hop)];
        int64_t crossing = block * f->most_hops + hop;
        f->crossings[crossing] = (struct tuccl_crossing){-1, port->first};
        if (port->first >= 0)
            f->crossings[port->first].previous = crossing;
        port->first = crossing;
    }
    mark_changed(f, step);
}

const struct tuccl_flow *tuccl_flows_soonest(const struct tuccl_flows *f) {
    return f->count ? &f->flows[f->ends[0]] : NULL;
}

void tuccl_flows_remove_soonest(struct tuccl_flows *f) {
    int64_t block = f->ends[0], step = f->flows[block].step;
    for (int64_t hop = 0; hop < hops_of(f, step); hop++) {
        struct tuccl_crossing *crossing = &f->crossings[block * f->most_hops + hop];
        if (crossing->next >= 0)
            f->crossings[crossing->next].previous = crossing->previous;
        if (crossing->previous >= 0)
            f->crossings[crossing->previous].next = crossing->next;
        else
            f->ports[port_of(f, step, hop)].first = crossing->next;
    }
    mark_changed(f, step);
    int64_t last = f->ends[--f->count];
    if (f->count) {
        put(f, 0, last);
        sift(f, last);
    }
}

/* Progressive filling. */

/* Collects the ports and flows that are connected with a port. */
static void collect_part(struct tuccl_flows *f, int64_t port) {
    f->part_port_count = f->part_flow_count = 0;
    f->ports[port].filled = f->filling;
    f->part_ports[f->part_port_count++] = port;
    for (int64_t i = 0; i < f->part_port_count; i++) {
        struct tuccl_flow_port *here = &f->ports[f->part_ports[i]];
        here->left = 1;
        here->flows = 0;
        for (int64_t at = here->first; at >= 0; at = f->crossings[at].next) {
            struct tuccl_flow *flow = &f->flows[at / f->most_hops];
            here->flows++;
            if (flow->filled == f->filling)
                continue;
            flow->filled = f->filling;
            flow->fixed = false;
            f->part_flows[f->part_flow_count++] = at / f->most_hops;
            for (int64_t hop = 0; hop < hops_of(f, flow->step); hop++) {
                int64_t next = port_of(f, flow->step, hop);
                if (f->ports[next].filled != f->filling)
                    f->part_ports[f->part_port_count++] = next;
                f->ports[next].filled = f->filling;
            }
        }
    }
}

/* Returns the rate at which a port's open flows fill what is left of it. */
static double level_of(const struct tuccl_flow_port *port) {
    return port->left / ((double)port->flows * port->us_per_byte);
}

/* Fixes the rate of a flow. */
static void fix(struct tuccl_flows *f, int64_t block, double bytes_per_us, double now_us) {
    struct tuccl_flow *flow = &f->flows[block];
    flow->fixed = true;
    f->part_flow_count--;
    for (int64_t hop = 0; hop < hops_of(f, flow->step); hop++) {
        struct tuccl_flow_port *port = &f->ports[port_of(f, flow->step, hop)];
        port->left -= bytes_per_us * port->us_per_byte;
        port->flows--;
    }
    if (flow->bytes_per_us <= bytes_per_us * EQUAL && bytes_per_us <= flow->bytes_per_us * EQUAL)
        return;
    flow->left_bytes -= flow->bytes_per_us * (now_us - flow->changed_us);
    if (flow->left_bytes < 0)
        flow->left_bytes = 0;
    flow->changed_us = now_us;
    flow->bytes_per_us = bytes_per_us;
    flow->end_us = now_us + flow->left_bytes / bytes_per_us;
    sift(f, block);
}

static void fill_part(struct tuccl_flows *f, double now_us) {
    f->levels.size = 0;
    for (int64_t i = 0; i < f->part_port_count; i++) {
        int64_t port = f->part_ports[i];
        if (f->ports[port].flows)
            tuccl_events_push(&f->levels, (struct tuccl_event){level_of(&f->ports[port]), port, 0});
    }
    int64_t flows = f->part_flow_count;
    double level = 0;
    while (f->part_flow_count > 0) {
        struct tuccl_event least = tuccl_events_pop(&f->levels);
        struct tuccl_flow_port *port = &f->ports[least.number];
        if (port->flows == 0)
            continue;
        /* Levels only grow while flows elsewhere are fixed. */
        double now_level = level_of(port);
        if (now_level > least.time_us * EQUAL) {
            tuccl_events_push(&f->levels, (struct tuccl_event){now_level, least.number, 0});
            continue;
        }
        /* Rounding must leave no flow without a rate. */
        if (least.time_us > level)
            level = least.time_us;
        if (level >= f->most_bytes_per_us)
            break;
        for (int64_t at = port->first; at >= 0; at = f->crossings[at].next)
            if (!f->flows[at / f->most_hops].fixed)
                fix(f, at / f->most_hops, level, now_us);
    }
    /* Threadblocks copy no faster. */
    for (int64_t i = 0; i < flows; i++)
        if (!f->flows[f->part_flows[i]].fixed)
            fix(f, f->part_flows[i], f->most_bytes_per_us, now_us);
}

void tuccl_flows_fill(struct tuccl_flows *f, double now_us) {
    f->filling++;
    for (int64_t i = 0; i < f->changed_count; i++) {
        int64_t port = f->changed[i];
        f->ports[port].is_changed = false;
        if (f->ports[port].filled == f->filling)
            continue;
        collect_part(f, port);
        fill_part(f, now_us);
    }
    f->changed_count = 0;
}
