/* The simulator's loops: one call of a schedule, event by event, under two models of how messages
 * share a port. synthesizer/simulate/simulator.py describes the cost model and its events. */
#ifndef TUCCL_SIMULATE_H
#define TUCCL_SIMULATE_H

#include <stdint.h>

/* A schedule on a sketch (synthesizer/ir/schedule_graph.py). Lists of lists are flat: list i
 * has the elements from begin[i] up to begin[i + 1]. */
struct tuccl_schedule {
    int64_t steps;
    int64_t ports;
    int64_t blocks;
    int64_t connections;
    const double *chunks;     /* by step: chunks that it moves */
    const double *alpha_us;   /* by step: alpha of its message */
    const int64_t *hop_begin; /* by step: the ports that its message passes */
    const int64_t *hop_port;
    const double *hop_us_per_byte;
    const int64_t *waiting_begin; /* by step: the steps of other threadblocks that wait for it */
    const int64_t *waiting;
    const int64_t *block_begin; /* by threadblock: its steps are consecutive numbers */
    const int64_t *connection_begin;
    const int64_t *sends;    /* by connection: its sends, in order */
    const int64_t *receives; /* by connection: the receives of the same messages */
};

/* Costs of a tile's steps. */
struct tuccl_costs {
    double handover_us;
    double wire_bytes_per_chunk;
    double copy_us_per_chunk;
};

enum tuccl_outcome { TUCCL_DONE, TUCCL_DEADLOCK, TUCCL_NO_MEMORY };

struct tuccl_simulated {
    double makespan_us;
    int64_t unfinished; /* steps of all tiles that never start, after a deadlock */
    int64_t stuck;      /* the first of them: tile * steps + step */
};

/* When each step ran, and when its message occupied each of its ports. Steps are numbered over all
 * tiles, as tile * steps + step; hops likewise, as tile * hop_begin[steps] + hop. */
struct tuccl_trace {
    double *begin_us;
    double *end_us;
    double *hop_begin_us;
    double *hop_end_us;
};

/* Runs `tiles` tiles, one after another in each threadblock, with at most `fifo_slots` messages in
 * flight on each connection. The schedule must be well formed, as schedule_graph() ensures. */
typedef int tuccl_simulation(const struct tuccl_schedule *schedule, int64_t tiles,
                             int64_t fifo_slots, const struct tuccl_costs *costs,
                             struct tuccl_simulated *simulated);

/* A port serves one message at a time, in the order of their arrival. */
__attribute__((visibility("default"))) tuccl_simulation tuccl_simulate_in_turn;

/* The same, with a trace: arrays of all steps and of all hops, or NULL for none. */
__attribute__((visibility("default"))) int
tuccl_trace_in_turn(const struct tuccl_schedule *schedule, int64_t tiles, int64_t fifo_slots,
                    const struct tuccl_costs *costs, struct tuccl_simulated *simulated,
                    const struct tuccl_trace *trace);

/* The messages under way get max-min fair rates. All hops over a port must have one us_per_byte. */
__attribute__((visibility("default"))) tuccl_simulation tuccl_simulate_fair;

#endif
