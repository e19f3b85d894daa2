/* Rehearsal of a program: whether every threadblock completes.
 *
 * Threadblocks wait only for messages, for room in a connection and for steps of other
 * threadblocks, and none consumes what another waits for. So if one order of steps completes, every
 * order does, and so do several loops, since each could run after the previous one. */
#include "program.h"

#include <stdlib.h>
#include <string.h>

/* A connection: chunks of the messages in flight. */
struct queue {
    uint32_t chunks[TUCCL_PROGRAM_SLOTS];
    uint32_t sent;
    uint32_t received;
};

struct rehearsal {
    const struct tuccl_program *program;
    uint32_t *at;         /* Step of each threadblock. */
    struct queue *queues; /* By the threadblock that receives. */
};

static struct queue *queue_of(const struct rehearsal *rehearsal, uint32_t receiver,
                              uint32_t connection) {
    const struct tuccl_program_rank *rank = &rehearsal->program->ranks[receiver];
    return &rehearsal->queues[rank->first_threadblock + connection];
}

/* Performs one step of a threadblock unless it must wait; sets *broken when a message has another
 * size than its receiver expects. */
static bool advance(struct rehearsal *rehearsal, uint32_t rank, uint32_t number, bool *broken) {
    const struct tuccl_program *program = rehearsal->program;
    uint32_t first = program->ranks[rank].first_threadblock;
    const struct tuccl_program_threadblock *threadblock = &program->threadblocks[first + number];
    uint32_t *at = &rehearsal->at[first + number];
    if (*at == threadblock->steps)
        return false;
    const struct tuccl_program_step *step = &program->steps[threadblock->first_step + *at];
    bool receives = tuccl_step_receives(step->type), sends = tuccl_step_sends(step->type);
    struct queue *source =
        receives ? queue_of(rehearsal, rank, threadblock->receive_connection) : NULL;
    struct queue *target =
        sends ? queue_of(rehearsal, (uint32_t)threadblock->send_peer, threadblock->send_connection)
              : NULL;
    if ((step->awaited_threadblock != TUCCL_NO_DEPENDENCE &&
         rehearsal->at[first + (uint32_t)step->awaited_threadblock] <= step->awaited_step) ||
        (receives && source->received == source->sent) ||
        (sends && target->sent - target->received == TUCCL_PROGRAM_SLOTS))
        return false;
    if (receives)
        *broken |= source->chunks[source->received++ % TUCCL_PROGRAM_SLOTS] != step->count;
    if (sends)
        target->chunks[target->sent++ % TUCCL_PROGRAM_SLOTS] = step->count;
    ++*at;
    return true;
}

static bool rehearse(struct rehearsal *rehearsal) {
    const struct tuccl_program_header *header = rehearsal->program->header;
    uint32_t left = header->step_count;
    bool broken = false;
    for (bool advanced = true; advanced && !broken;) {
        advanced = false;
        for (uint32_t rank = 0; rank < header->ranks; rank++)
            for (uint32_t i = 0; i < rehearsal->program->ranks[rank].threadblocks; i++)
                while (!broken && advance(rehearsal, rank, i, &broken)) {
                    advanced = true;
                    left--;
                }
    }
    for (uint32_t i = 0; i < header->threadblock_count; i++)
        broken |= rehearsal->queues[i].sent != rehearsal->queues[i].received;
    return left == 0 && !broken;
}

bool tuccl_program_ends(const struct tuccl_program *program) {
    size_t count = program->header->threadblock_count;
    struct rehearsal rehearsal = {program, calloc(count + 1, sizeof *rehearsal.at),
                                  calloc(count + 1, sizeof *rehearsal.queues)};
    bool ends = rehearsal.at != NULL && rehearsal.queues != NULL && rehearse(&rehearsal);
    free(rehearsal.at);
    free(rehearsal.queues);
    return ends;
}
