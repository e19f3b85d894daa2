/* The recorder's interface to NCCL: one exported structure per version of the profiler ABI.
 *
 * Every function returns success. NCCL up to 2.27 drops the profiler after a failed init and then
 * reads its name when the last communicator ends, and a context of NULL is one that is not
 * recorded. */
#include "profiler_abi.h"
#include "recorder.h"

#define EXPORTED __attribute__((visibility("default")))

static const char plugin_name[] = "TuCCL";

static int leave(void **handle) {
    if (handle != NULL)
        *handle = NULL;
    return 0;
}

/* NCCL 2.23 to 2.27 tell of work only in groups that have a handle. */
static int enter_group(void **handle) {
    static char group;
    if (handle != NULL)
        *handle = &group;
    return 0;
}

/* Starts to record a communicator, of which versions before 4 say nothing. */
static int start(int abi, void **context, int *activation, uint64_t hash, int ranks, int nodes,
                 int rank) {
    int events = abi >= 5 ? NCCL_PROFILE_COLLECTIVE_CALL | NCCL_PROFILE_P2P_CALL
                          : NCCL_PROFILE_COLLECTIVE | NCCL_PROFILE_P2P;
    bool records = activation != NULL && tuccl_recorder_start(abi);
    struct tuccl_recorded_communicator *communicator =
        records ? tuccl_recorder_add(hash, ranks, nodes, rank) : NULL;
    if (activation != NULL)
        *activation = records ? events : 0;
    if (context != NULL)
        *context = communicator;
    return 0;
}

static int init_v1(void **context, int *activation) {
    return start(1, context, activation, 0, 0, 0, -1);
}

static int init_v2(void **context, int *activation) {
    return start(2, context, activation, 0, 0, 0, -1);
}

static int init_v3(void **context, int *activation) {
    return start(3, context, activation, 0, 0, 0, -1);
}

static int init_v4(void **context, int *activation, const char *communicator_name,
                   uint64_t communicator, int nodes, int ranks, int rank, void *logger) {
    (void)communicator_name;
    (void)logger;
    return start(4, context, activation, communicator, ranks, nodes, rank);
}

static int init_v5(void **context, uint64_t communicator, int *activation,
                   const char *communicator_name, int nodes, int ranks, int rank, void *logger) {
    (void)communicator_name;
    (void)logger;
    return start(5, context, activation, communicator, ranks, nodes, rank);
}

static int init_v6(void **context, uint64_t communicator, int *activation,
                   const char *communicator_name, int nodes, int ranks, int rank, void *logger) {
    (void)communicator_name;
    (void)logger;
    return start(6, context, activation, communicator, ranks, nodes, rank);
}

static uint8_t answer(bool yes) {
    return yes ? RECORDED_YES : RECORDED_NO;
}

/* NCCL's in-place calls have the rank's own part of the larger buffer as the smaller one. */
static bool is_in_place(const struct tuccl_recorded_call *call, const void *send,
                        const void *receive, int rank) {
    uintptr_t from = (uintptr_t)send, to = (uintptr_t)receive;
    uintptr_t offset = (uintptr_t)rank * call->count * tuccl_element_bytes(call->datatype);
    if (tuccl_input_is_part(call->operation))
        return from == to + offset;
    return tuccl_output_is_part(call->operation) ? to == from + offset : from == to;
}

/* Work that NCCL launches: a call whose operation and datatype are read. */
static void count_work(struct tuccl_recorded_communicator *communicator,
                       struct tuccl_recorded_call *call, const void *send, const void *receive) {
    int rank = tuccl_recorder_rank(communicator);
    call->in_place = answer(is_in_place(call, send, receive, rank));
    if (call->operation == TUCCL_ALL_GATHER || call->operation == TUCCL_BROADCAST)
        call->datatype = RECORDED_BYTES;
    tuccl_recorder_count(communicator, call);
}

/* Reads the names of a call, or counts it as one that cannot be read. */
static bool read_names(const char *function, const char *datatype,
                       struct tuccl_recorded_call *call) {
    bool known = tuccl_operation_named(function, &call->operation) &&
                 tuccl_datatype_named(datatype, &call->datatype);
    if (!known)
        tuccl_recorder_count_unreadable();
    return known;
}

/* The same of the numbers that version 1 has instead. */
static bool read_numbers(uint8_t function, uint8_t datatype, struct tuccl_recorded_call *call) {
    bool known = tuccl_operation_numbered(function, &call->operation) &&
                 tuccl_datatype_numbered(datatype, &call->datatype);
    if (!known)
        tuccl_recorder_count_unreadable();
    return known;
}

static void count_named_work(struct tuccl_recorded_communicator *communicator, const char *function,
                             const char *datatype, size_t count, const void *send,
                             const void *receive) {
    struct tuccl_recorded_call call = {.reduction = RECORDED_NO_REDUCTION, .count = count};
    if (read_names(function, datatype, &call))
        count_work(communicator, &call, send, receive);
}

static void count_named_call(struct tuccl_recorded_communicator *communicator, const char *function,
                             const char *datatype, size_t count, uint8_t graph) {
    struct tuccl_recorded_call call = {
        .reduction = RECORDED_NO_REDUCTION, .graph = graph, .count = count};
    if (read_names(function, datatype, &call))
        tuccl_recorder_count(communicator, &call);
}

static void count_collective_v1(struct tuccl_recorded_communicator *communicator,
                                const struct tuccl_event_v1 *event) {
    uint32_t reduction = event->collective.reduction;
    struct tuccl_recorded_call call = {.count = event->collective.count};
    tuccl_recorder_name(communicator, event->collective.communicator, event->rank);
    if (!read_numbers(event->collective.function, event->collective.datatype, &call))
        return;
    if (!tuccl_is_reduction(call.operation))
        call.reduction = RECORDED_NO_REDUCTION;
    else
        call.reduction =
            reduction < RECORDED_CUSTOM_REDUCTION ? (uint8_t)reduction : RECORDED_CUSTOM_REDUCTION;
    count_work(communicator, &call, event->collective.send, event->collective.receive);
}

static void count_p2p_v1(struct tuccl_recorded_communicator *communicator,
                         const struct tuccl_event_v1 *event) {
    struct tuccl_recorded_call call = {.reduction = RECORDED_NO_REDUCTION,
                                       .count = event->p2p.count};
    tuccl_recorder_name(communicator, event->p2p.communicator, event->rank);
    if (read_numbers(event->p2p.function, event->p2p.datatype, &call))
        tuccl_recorder_count(communicator, &call);
}

static int start_event_v1(void *context, void **handle, void *event) {
    const struct tuccl_event_v1 *found = event;
    if (context == NULL || found == NULL)
        return leave(handle);
    if (found->type == NCCL_PROFILE_COLLECTIVE)
        count_collective_v1(context, found);
    else if (found->type == NCCL_PROFILE_P2P)
        count_p2p_v1(context, found);
    return found->type == NCCL_PROFILE_GROUP ? enter_group(handle) : leave(handle);
}

/* Versions 2 and 3. */
static int start_event_v2(void *context, void **handle, void *event) {
    const struct tuccl_event_v2 *found = event;
    if (context == NULL || found == NULL)
        return leave(handle);
    if (found->type == NCCL_PROFILE_COLLECTIVE) {
        tuccl_recorder_name(context, found->collective.communicator, found->rank);
        count_named_work(context, found->collective.function, found->collective.datatype,
                         found->collective.count, found->collective.send,
                         found->collective.receive);
    } else if (found->type == NCCL_PROFILE_P2P) {
        tuccl_recorder_name(context, found->p2p.communicator, found->rank);
        count_named_call(context, found->p2p.function, found->p2p.datatype, found->p2p.count,
                         RECORDED_UNKNOWN);
    }
    return found->type == NCCL_PROFILE_GROUP ? enter_group(handle) : leave(handle);
}

static int start_event_v4(void *context, void **handle, void *event) {
    const struct tuccl_event_v4 *found = event;
    if (context == NULL || found == NULL)
        return leave(handle);
    if (found->type == NCCL_PROFILE_COLLECTIVE)
        count_named_work(context, found->collective.function, found->collective.datatype,
                         found->collective.count, found->collective.send,
                         found->collective.receive);
    else if (found->type == NCCL_PROFILE_P2P)
        count_named_call(context, found->p2p.function, found->p2p.datatype, found->p2p.count,
                         RECORDED_UNKNOWN);
    return found->type == NCCL_PROFILE_GROUP ? enter_group(handle) : leave(handle);
}

/* Versions 5 and 6. */
static int start_event_v5(void *context, void **handle, void *event) {
    const struct tuccl_event_v5 *found = event;
    if (context == NULL || found == NULL)
        return leave(handle);
    if (found->type == NCCL_PROFILE_COLLECTIVE_CALL)
        count_named_call(context, found->collective.function, found->collective.datatype,
                         found->collective.count, answer(found->collective.captured != 0));
    else if (found->type == NCCL_PROFILE_P2P_CALL)
        count_named_call(context, found->p2p.function, found->p2p.datatype, found->p2p.count,
                         answer(found->p2p.captured != 0));
    return leave(handle);
}

static int stop_event(void *handle) {
    (void)handle;
    return 0;
}

static int record_event_state(void *handle, int state, void *arguments) {
    (void)handle;
    (void)state;
    (void)arguments;
    return 0;
}

static int finalize(void *context) {
    if (context != NULL)
        tuccl_recorder_end(context);
    return 0;
}

EXPORTED extern const struct tuccl_profiler_v1 ncclProfiler_v1;
EXPORTED extern const struct tuccl_profiler_v1 ncclProfiler_v2;
EXPORTED extern const struct tuccl_profiler_v1 ncclProfiler_v3;
EXPORTED extern const struct tuccl_profiler_v4 ncclProfiler_v4;
EXPORTED extern const struct tuccl_profiler_v5 ncclProfiler_v5;
EXPORTED extern const struct tuccl_profiler_v5 ncclProfiler_v6;

const struct tuccl_profiler_v1 ncclProfiler_v1 = {
    plugin_name, init_v1, start_event_v1, stop_event, record_event_state, finalize};
const struct tuccl_profiler_v1 ncclProfiler_v2 = {
    plugin_name, init_v2, start_event_v2, stop_event, record_event_state, finalize};
const struct tuccl_profiler_v1 ncclProfiler_v3 = {
    plugin_name, init_v3, start_event_v2, stop_event, record_event_state, finalize};
const struct tuccl_profiler_v4 ncclProfiler_v4 = {
    plugin_name, init_v4, start_event_v4, stop_event, record_event_state, finalize};
const struct tuccl_profiler_v5 ncclProfiler_v5 = {
    plugin_name, init_v5, start_event_v5, stop_event, record_event_state, finalize};
const struct tuccl_profiler_v5 ncclProfiler_v6 = {
    plugin_name, init_v6, start_event_v5, stop_event, record_event_state, finalize};
