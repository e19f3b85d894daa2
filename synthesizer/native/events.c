#include "events.h"

#include <stdbool.h>

static bool is_earlier(const struct tuccl_event *a, const struct tuccl_event *b) {
    if (a->time_us != b->time_us)
        return a->time_us < b->time_us;
    if (a->number != b->number)
        return a->number < b->number;
    return a->hop < b->hop;
}

void tuccl_events_push(struct tuccl_events *queue, struct tuccl_event event) {
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

struct tuccl_event tuccl_events_pop(struct tuccl_events *queue) {
    struct tuccl_event first = queue->events[0];
    struct tuccl_event last = queue->events[--queue->size];
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
