/* Messages by time: at a port of their route, or ready to start. */
#ifndef TUCCL_EVENTS_H
#define TUCCL_EVENTS_H

#include <stdint.h>

/* The arrival of a message at a port; `number` is that of its step. */
struct tuccl_event {
    double time_us;
    int64_t number;
    int64_t hop;
};

/* A binary heap, earliest event first: by time, then tile and step, then hop. */
struct tuccl_events {
    struct tuccl_event *events;
    int64_t size;
};

void tuccl_events_push(struct tuccl_events *queue, struct tuccl_event event);
struct tuccl_event tuccl_events_pop(struct tuccl_events *queue);

#endif
