#include "program.h"

#include "crc32.h"

#include <stdio.h>
#include <string.h>

/* As in executor/executor.h and the bundle. */
enum { BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, ALLTOALL, OPERATIONS };
enum { PATTERNS = 4 };

static bool refuse(char *why, size_t why_bytes, const char *reason) {
    snprintf(why, why_bytes, "%s", reason);
    return false;
}

static bool is_divided(uint32_t operation) {
    return operation == ALL_GATHER || operation == REDUCE_SCATTER || operation == ALLTOALL;
}

uint32_t tuccl_program_part_chunks(const struct tuccl_program_header *header) {
    return header->chunks_per_loop / (is_divided(header->operation) ? header->ranks : 1);
}

uint32_t tuccl_program_buffer_chunks(const struct tuccl_program *program, uint32_t rank,
                                     uint32_t buffer) {
    const struct tuccl_program_header *header = program->header;
    if (buffer == TUCCL_BUFFER_SCRATCH)
        return program->ranks[rank].scratch_chunks;
    bool input = buffer == TUCCL_BUFFER_INPUT;
    if (header->operation == (input ? ALL_GATHER : REDUCE_SCATTER))
        return tuccl_program_part_chunks(header);
    if (header->operation == (input ? BROADCAST : REDUCE) && rank != header->root)
        return 0;
    return header->chunks_per_loop;
}

static uint32_t crc_of(const unsigned char *data, size_t bytes) {
    size_t field = offsetof(struct tuccl_program_header, crc);
    size_t behind = field + sizeof(uint32_t);
    return tuccl_crc32(tuccl_crc32(0, data, field), data + behind, bytes - behind);
}

static bool header_is_sound(const struct tuccl_program_header *header) {
    bool rooted = header->operation == BROADCAST || header->operation == REDUCE;
    return header->operation < OPERATIONS && header->pattern < PATTERNS && header->ranks >= 2 &&
           header->ranks <= TUCCL_PROGRAM_MOST_RANKS && header->chunks_per_loop >= 1 &&
           header->chunks_per_loop <= TUCCL_PROGRAM_MOST_CHUNKS &&
           !(is_divided(header->operation) && header->chunks_per_loop % header->ranks != 0) &&
           header->root < (rooted ? header->ranks : 1) && header->zero == 0 &&
           (header->flags & ~(TUCCL_PROGRAM_RUNS_IN_PLACE | TUCCL_PROGRAM_AVERAGES)) == 0;
}

static bool place_records(const unsigned char *data, size_t bytes, struct tuccl_program *program) {
    const struct tuccl_program_header *header = program->header;
    uint64_t ranks = sizeof *header;
    uint64_t threadblocks = ranks + header->ranks * sizeof *program->ranks;
    uint64_t steps =
        threadblocks + (uint64_t)header->threadblock_count * sizeof *program->threadblocks;
    if (steps + (uint64_t)header->step_count * sizeof *program->steps != bytes)
        return false;
    program->ranks = (const void *)(data + ranks);
    program->threadblocks = (const void *)(data + threadblocks);
    program->steps = (const void *)(data + steps);
    return true;
}

static bool ranks_are_sound(const struct tuccl_program *program) {
    const struct tuccl_program_header *header = program->header;
    uint32_t next = 0, threadblocks = 0, connections = 0, scratch = 0;
    for (uint32_t i = 0; i < header->ranks; i++) {
        const struct tuccl_program_rank *rank = &program->ranks[i];
        if (rank->first_threadblock != next || rank->threadblocks < 1 ||
            rank->threadblocks > TUCCL_PROGRAM_MOST_THREADBLOCKS ||
            rank->threadblocks > header->threadblock_count - next ||
            rank->connections > rank->threadblocks ||
            rank->scratch_chunks > TUCCL_PROGRAM_MOST_CHUNKS)
            return false;
        next += rank->threadblocks;
        threadblocks = rank->threadblocks > threadblocks ? rank->threadblocks : threadblocks;
        connections = rank->connections > connections ? rank->connections : connections;
        scratch = rank->scratch_chunks > scratch ? rank->scratch_chunks : scratch;
    }
    return next == header->threadblock_count && threadblocks == header->most_threadblocks &&
           connections == header->most_connections && scratch == header->most_scratch_chunks;
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

static bool lies_within(uint32_t offset, uint32_t count, uint32_t chunks) {
    return offset <= chunks && count <= chunks - offset;
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
        !lies_within(step->source, step->count,
                     tuccl_program_buffer_chunks(program, rank, step->source_buffer)))
        return false;
    if (!tuccl_step_writes(step->type))
        return true;
    /* The caller's input must not change. */
    return step->destination_buffer != TUCCL_BUFFER_INPUT &&
           lies_within(step->destination, step->count,
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

bool tuccl_program_is_sealed(const void *data, size_t bytes, uint32_t version, char *why,
                             size_t why_bytes) {
    const struct tuccl_program_header *header = data;
    if (bytes < sizeof *header || memcmp(header->magic, TUCCL_PROGRAM_MAGIC, 8) != 0)
        return refuse(why, why_bytes, "is no program");
    if (bytes > TUCCL_PROGRAM_MOST_BYTES)
        return refuse(why, why_bytes, "is larger than any program");
    if (header->version != version || header->features != 0)
        return refuse(why, why_bytes, "is one of a newer release");
    if (header->bytes != bytes || crc_of(data, bytes) != header->crc)
        return refuse(why, why_bytes, "is damaged");
    return true;
}

bool tuccl_program_check(const void *data, size_t bytes, struct tuccl_program *program, char *why,
                         size_t why_bytes) {
    const struct tuccl_program_header *header = data;
    memset(program, 0, sizeof *program);
    if (!tuccl_program_is_sealed(data, bytes, TUCCL_PROGRAM_VERSION, why, why_bytes))
        return false;
    program->header = header;
    if (!header_is_sound(header) || !place_records(data, bytes, program))
        return refuse(why, why_bytes, "contradicts itself in its header");
    if (!ranks_are_sound(program) || !threadblocks_are_sound(program))
        return refuse(why, why_bytes, "contradicts itself in its threadblocks");
    if (!connections_are_sound(program))
        return refuse(why, why_bytes, "contradicts itself in its connections");
    if (!steps_are_sound(program))
        return refuse(why, why_bytes, "contradicts itself in its steps");
    if (!tuccl_program_ends(program))
        return refuse(why, why_bytes, "would wait for ever");
    return true;
}
