/* The rules of steps: threadblocks of the ranks of one node, their connections and a rehearsal. */
#include "program_rules.h"

#include <stdlib.h>
#include <string.h>

static bool phase_is_sound(const struct tuccl_program *program) {
    struct tuccl_phase expected = {.kind = TUCCL_PHASE_STEPS};
    expected.pattern = program->phases[0].pattern;
    return program->header->phase_count == 1 && expected.pattern < TUCCL_PATTERNS &&
           memcmp(&expected, &program->phases[0], sizeof expected) == 0;
}

static bool ranks_are_sound(const struct tuccl_program *program) {
    const struct tuccl_program_header *header = program->header;
    uint32_t next = 0, threadblocks = 0, connections = 0;
    for (uint32_t i = 0; i < header->ranks; i++) {
        const struct tuccl_program_rank *rank = &program->ranks[i];
        if (rank->first_threadblock != next || rank->threadblocks < 1 ||
            rank->threadblocks > TUCCL_PROGRAM_MOST_THREADBLOCKS ||
            rank->threadblocks > header->threadblock_count - next ||
            rank->connections > rank->threadblocks)
            return false;
        next += rank->threadblocks;
        threadblocks = rank->threadblocks > threadblocks ? rank->threadblocks : threadblocks;
        connections = rank->connections > connections ? rank->connections : connections;
    }
    return next == header->threadblock_count && threadblocks == header->most_threadblocks &&
           connections == header->most_connections;
}

/* Returns the threadblock that receives from a sender, NULL if there is not exactly one. */
static const struct tuccl_program_threadblock *
receiving_end(const struct tuccl_program *program, uint32_t sender,
              const struct tuccl_program_threadblock *threadblock) {
    const struct tuccl_program_rank *peer = &program->ranks[threadblock->send_peer];
    const struct tuccl_program_threadblock *found = NULL;
    for (uint32_t i = 0; i < peer->threadblocks; i++) {
        const struct tuccl_program_threadblock *other =
            &program->threadblocks[peer->first_threadblock + i];
        if (other->receive_peer != (int32_t)sender || other->channel != threadblock->channel)
            continue;
        if (found != NULL)
            return NULL;
        found = other;
    }
    return found;
}

static bool peers_are_sound(const struct tuccl_program *program, uint32_t rank,
                            const struct tuccl_program_threadblock *threadblock) {
    int32_t ranks = (int32_t)program->header->ranks;
    int32_t send = threadblock->send_peer, receive = threadblock->receive_peer;
    return send >= TUCCL_NO_PEER && send < ranks && send != (int32_t)rank &&
           receive >= TUCCL_NO_PEER && receive < ranks && receive != (int32_t)rank &&
           threadblock->zero == 0 && threadblock->also_zero == 0;
}

/* Connections that arrive are numbered in the order of their threadblocks, each has one sender. */
static bool connections_are_sound(const struct tuccl_program *program) {
    uint32_t sends = 0, receives = 0;
    for (uint32_t i = 0; i < program->header->ranks; i++) {
        const struct tuccl_program_rank *rank = &program->ranks[i];
        uint32_t arriving = 0;
        for (uint32_t j = 0; j < rank->threadblocks; j++) {
            const struct tuccl_program_threadblock *threadblock =
                &program->threadblocks[rank->first_threadblock + j];
            bool has_source = threadblock->receive_peer != TUCCL_NO_PEER;
            uint32_t number = has_source ? arriving++ : (uint32_t)TUCCL_NO_CONNECTION;
            if (threadblock->receive_connection != number)
                return false;
            if (threadblock->send_peer == TUCCL_NO_PEER) {
                if (threadblock->send_connection != TUCCL_NO_CONNECTION)
                    return false;
                continue;
            }
            const struct tuccl_program_threadblock *end = receiving_end(program, i, threadblock);
            if (end == NULL || end->receive_connection != threadblock->send_connection)
                return false;
            sends++;
            /* No other threadblock of this rank sends there. */
            for (uint32_t k = 0; k < j; k++) {
                const struct tuccl_program_threadblock *other =
                    &program->threadblocks[rank->first_threadblock + k];
                if (other->send_peer == threadblock->send_peer &&
                    other->channel == threadblock->channel)
                    return false;
            }
        }
        if (arriving != rank->connections)
            return false;
        receives += arriving;
    }
    return sends == receives;
}

static bool awaits_soundly(const struct tuccl_program *program,
                           const struct tuccl_program_rank *rank, uint32_t own,
                           const struct tuccl_program_step *step) {
    if (step->awaited_threadblock == TUCCL_NO_DEPENDENCE)
        return step->awaited_step == 0;
    if (step->awaited_threadblock < 0 ||
        (uint32_t)step->awaited_threadblock >= rank->threadblocks ||
        (uint32_t)step->awaited_threadblock == own)
        return false;
    const struct tuccl_program_threadblock *other =
        &program->threadblocks[rank->first_threadblock + (uint32_t)step->awaited_threadblock];
    return step->awaited_step < other->steps &&
           (program->steps[other->first_step + step->awaited_step].flags &
            TUCCL_STEP_HAS_DEPENDENT) != 0;
}

static bool step_is_sound(const struct tuccl_program *program, uint32_t rank,
                          const struct tuccl_program_threadblock *threadblock,
                          const struct tuccl_program_step *step) {
    if (step->type >= TUCCL_STEP_TYPES || step->source_buffer >= TUCCL_BUFFERS ||
        step->destination_buffer >= TUCCL_BUFFERS || step->count < 1 ||
        step->count > TUCCL_PROGRAM_MOST_STEPS ||
        (step->flags & ~(TUCCL_STEP_HAS_DEPENDENT | TUCCL_STEP_COMPLETES)) != 0)
        return false;
    if (tuccl_step_sends(step->type) && threadblock->send_peer == TUCCL_NO_PEER)
        return false;
    if (tuccl_step_receives(step->type) && threadblock->receive_peer == TUCCL_NO_PEER)
        return false;
    if (tuccl_step_reads(step->type) &&
        !tuccl_lies_within(step->source, step->count,
                           tuccl_program_buffer_chunks(program, rank, step->source_buffer)))
        return false;
    if (!tuccl_step_writes(step->type))
        return true;
    /* The caller's input must not change. */
    return step->destination_buffer != TUCCL_BUFFER_INPUT &&
           tuccl_lies_within(step->destination, step->count,
                             tuccl_program_buffer_chunks(program, rank, step->destination_buffer));
}

/* Checks that the threadblocks' steps are contiguous, then each threadblock. */
static bool threadblocks_are_sound(const struct tuccl_program *program) {
    const struct tuccl_program_header *header = program->header;
    uint32_t next = 0, longest = 0;
    for (uint32_t rank = 0; rank < header->ranks; rank++) {
        const struct tuccl_program_rank *record = &program->ranks[rank];
        for (uint32_t j = 0; j < record->threadblocks; j++) {
            const struct tuccl_program_threadblock *threadblock =
                &program->threadblocks[record->first_threadblock + j];
            if (!peers_are_sound(program, rank, threadblock) || threadblock->first_step != next ||
                threadblock->steps > header->step_count - next ||
                threadblock->steps > TUCCL_PROGRAM_MOST_STEPS)
                return false;
            next += threadblock->steps;
            longest = threadblock->steps > longest ? threadblock->steps : longest;
        }
    }
    return next == header->step_count && longest == header->longest_threadblock;
}

static bool steps_are_sound(const struct tuccl_program *program) {
    uint32_t largest = 0;
    for (uint32_t rank = 0; rank < program->header->ranks; rank++) {
        const struct tuccl_program_rank *record = &program->ranks[rank];
        for (uint32_t j = 0; j < record->threadblocks; j++) {
            const struct tuccl_program_threadblock *threadblock =
                &program->threadblocks[record->first_threadblock + j];
            for (uint32_t k = 0; k < threadblock->steps; k++) {
                const struct tuccl_program_step *step =
                    &program->steps[threadblock->first_step + k];
                if (!step_is_sound(program, rank, threadblock, step) ||
                    !awaits_soundly(program, record, j, step))
                    return false;
                if (tuccl_step_sends(step->type) && step->count > largest)
                    largest = step->count;
            }
        }
    }
    return largest == program->header->largest_message;
}

/* A rehearsal: whether every threadblock completes.
 *
 * Threadblocks wait only for messages, for room in a connection and for steps of other
 * threadblocks, and none consumes what another waits for. So if one order of steps completes, every
 * order does, and so do several loops, since each could run after the previous one. */

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

static bool ends(const struct tuccl_program *program) {
    size_t count = program->header->threadblock_count;
    struct rehearsal rehearsal = {program, calloc(count + 1, sizeof *rehearsal.at),
                                  calloc(count + 1, sizeof *rehearsal.queues)};
    bool all_end = rehearsal.at != NULL && rehearsal.queues != NULL && rehearse(&rehearsal);
    free(rehearsal.at);
    free(rehearsal.queues);
    return all_end;
}

const char *tuccl_fault_of_steps(const struct tuccl_program *program) {
    if (!phase_is_sound(program))
        return "contradicts itself in its phases";
    if (!ranks_are_sound(program) || !threadblocks_are_sound(program))
        return "contradicts itself in its threadblocks";
    if (!connections_are_sound(program))
        return "contradicts itself in its connections";
    if (!steps_are_sound(program))
        return "contradicts itself in its steps";
    return ends(program) ? NULL : "would wait for ever";
}
