#include "collective.h"
#include "rounding.h"
#include "session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { UNTOUCHED = 0xA5, PATTERN_BYTES = PATTERN_ELEMENTS * LARGEST_ELEMENT_BYTES };

struct checker {
    struct tuccl_measure *measure;
    nccl_communicator communicator;
    struct collective collective;
    device_pointer send, receive;
    /* Expected and actual data, PATTERN_ELEMENTS elements each; a smaller message uses only the
     * first. */
    unsigned char *expected, *found;
    size_t elements;
    int local_ranks; /* Of a node, in which sums that round are added first; 0: sums are exact. */
    char *finding;
    size_t finding_bytes;
    bool wrong;
};

static void expect_rank(struct checker *checker, int rank) {
    if (checker->local_ranks != 0)
        rounding_of_rank(checker->collective.type, rank, checker->elements, checker->expected);
    else
        pattern_of_rank(checker->collective.type, checker->collective.ranks, rank,
                        checker->elements, checker->expected);
}

static void expect_sum(struct checker *checker) {
    if (checker->local_ranks != 0)
        rounding_of_sum(checker->collective.type, checker->collective.ranks, checker->local_ranks,
                        checker->elements, checker->expected);
    else
        pattern_of_sum(checker->collective.type, checker->collective.ranks, checker->elements,
                       checker->expected);
}

/* Returns how many of `left` elements lie before the end of the period of `element`. */
static size_t window(size_t element, size_t left) {
    size_t to_end = PATTERN_ELEMENTS - element % PATTERN_ELEMENTS;
    return left < to_end ? left : to_end;
}

/* Writes `count` elements of the periodic table, from its element `first` on. */
static bool put(struct checker *checker, device_pointer to, size_t first, size_t count) {
    size_t bytes = checker->collective.element_bytes;
    for (size_t done = 0; done < count;) {
        size_t elements = window(first + done, count - done);
        const unsigned char *from = checker->expected + (first + done) % PATTERN_ELEMENTS * bytes;
        if (!CUDA_OK(checker->measure, copy_to_device, to + done * bytes, from, elements * bytes))
            return false;
        done += elements;
    }
    return true;
}

static void hex(char *text, const unsigned char *element, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", element[bytes - 1 - i]);
}

static void tell(struct checker *checker, const char *what, size_t at, size_t elements,
                 const unsigned char *expected) {
    size_t bytes = checker->collective.element_bytes, differing = 0, first = 0;
    for (size_t i = elements; i-- > 0;)
        if (memcmp(checker->found + i * bytes, expected + i * bytes, bytes) != 0) {
            first = i;
            differing++;
        }
    char is[2 * LARGEST_ELEMENT_BYTES + 1], wanted[2 * LARGEST_ELEMENT_BYTES + 1];
    hex(is, checker->found + first * bytes, bytes);
    hex(wanted, expected + first * bytes, bytes);
    snprintf(checker->finding, checker->finding_bytes,
             "%s: element %zu is 0x%s instead of 0x%s, and %zu of %zu elements around it are wrong",
             what, at + first, is, wanted, differing, elements);
    checker->wrong = true;
}

/* Compares `count` elements with the periodic table, from its element `first` on. False only when
 * the comparison itself fails. */
static bool compare(struct checker *checker, const char *what, device_pointer at, size_t first,
                    size_t count) {
    size_t bytes = checker->collective.element_bytes;
    for (size_t done = 0; done < count && !checker->wrong;) {
        size_t elements = window(first + done, count - done);
        const unsigned char *expected =
            checker->expected + (first + done) % PATTERN_ELEMENTS * bytes;
        if (!CUDA_OK(checker->measure, copy_to_host, checker->found, at + done * bytes,
                     elements * bytes))
            return false;
        if (memcmp(checker->found, expected, elements * bytes) != 0)
            tell(checker, what, done, elements, expected);
        done += elements;
    }
    return true;
}

static bool put_input(struct checker *checker) {
    struct collective *collective = &checker->collective;
    struct tuccl_measure *measure = checker->measure;
    if (!CUDA_OK(measure, fill, checker->receive, UNTOUCHED,
                 larger_buffer_bytes(collective) + GUARD_BYTES, measure->stream) ||
        !CUDA_OK(measure, synchronize_stream, measure->stream))
        return false;
    expect_rank(checker, collective->rank);
    return put(checker, checker->send + collective->send_offset, 0,
               collective->send_bytes / collective->element_bytes);
}

static bool enqueue_once(struct tuccl_measure *measure, const void *argument) {
    const struct checker *checker = argument;
    return nccl_enqueue(&measure->nccl, checker->communicator, &checker->collective, checker->send,
                        checker->receive, measure->stream, &measure->failure);
}

static bool run_once(struct checker *checker, bool use_graph) {
    struct tuccl_measure *measure = checker->measure;
    if (!use_graph)
        return enqueue_once(measure, checker) && session_wait(measure);
    cuda_graph_exec exec = NULL;
    if (!session_capture(measure, enqueue_once, checker, &exec))
        return false;
    bool done = CUDA_OK(measure, launch_graph, exec, measure->stream) && session_wait(measure);
    measure->cuda.destroy_graph_exec(exec);
    return done;
}

/* Checks parts of the output, one per rank, as the ranks sent them from their element `first` on.
 */
static bool compare_parts(struct checker *checker, size_t first) {
    const struct collective *collective = &checker->collective;
    for (int rank = 0; rank < collective->ranks; rank++) {
        char what[40];
        snprintf(what, sizeof what, "the part of rank %d", rank);
        expect_rank(checker, rank);
        device_pointer part =
            checker->receive + (size_t)rank * collective->count * collective->element_bytes;
        if (!compare(checker, what, part, first, collective->count))
            return false;
    }
    return true;
}

/* Returns the number of the output's first element among those that the ranks sent. */
static size_t first_of_output(const struct collective *collective) {
    bool splits = (tuccl_flow(collective->operation) & TUCCL_SPLITS) != 0;
    return splits ? (size_t)collective->rank * collective->count : 0;
}

static bool compare_output(struct checker *checker) {
    const struct collective *collective = &checker->collective;
    device_pointer output = checker->receive + collective->receive_offset;
    uint32_t flow = tuccl_flow(collective->operation);
    size_t first = first_of_output(collective);
    if ((flow & TUCCL_TO_ROOT) != 0 && collective->rank != 0)
        return true; /* NCCL leaves the output of ranks other than the root undefined. */
    if ((flow & TUCCL_JOINS) != 0)
        return compare_parts(checker, first);
    if ((flow & TUCCL_REDUCES) != 0)
        expect_sum(checker);
    else
        expect_rank(checker, 0);
    return compare(checker, "the output", output, first, collective->count);
}

/* Compares up to a period of averages from element `at` of the output on. Releases of NCCL round
 * them at different steps, so half of the number is allowed: enough for any, and no sum is taken
 * for one. */
static bool compare_averages(struct checker *checker, size_t at) {
    const struct collective *collective = &checker->collective;
    size_t bytes = collective->element_bytes, left = collective->count - at;
    size_t first = first_of_output(collective), elements = window(first + at, left);
    const unsigned char *sums = checker->expected + (first + at) % PATTERN_ELEMENTS * bytes;
    device_pointer output = checker->receive + collective->receive_offset + at * bytes;
    if (!CUDA_OK(checker->measure, copy_to_host, checker->found, output, elements * bytes))
        return false;
    for (size_t i = 0; i < elements && !checker->wrong; i++) {
        double sum = number_of(collective->type, sums + i * bytes);
        double average = number_of(collective->type, checker->found + i * bytes);
        if (fabs(average * collective->ranks - sum) <= sum / 2 + collective->ranks)
            continue;
        snprintf(checker->finding, checker->finding_bytes,
                 "the average at element %zu is %g instead of %g", at + i, average,
                 sum / collective->ranks);
        checker->wrong = true;
    }
    return true;
}

/* Makes the call once more for averages, on all ranks, and compares the first and the last ones. */
static bool check_averages(struct checker *checker, bool use_graph) {
    struct collective *collective = &checker->collective;
    uint32_t flow = tuccl_flow(collective->operation);
    if (checker->local_ranks != 0 || (flow & TUCCL_REDUCES) == 0)
        return true;
    collective->averages = true;
    if (!put_input(checker) || !run_once(checker, use_graph))
        return false;
    if (checker->wrong || ((flow & TUCCL_TO_ROOT) != 0 && collective->rank != 0))
        return true;
    size_t count = collective->count;
    size_t last = (first_of_output(collective) + count - 1) % PATTERN_ELEMENTS + 1;
    expect_sum(checker);
    return compare_averages(checker, 0) &&
           compare_averages(checker, last < count ? count - last : 0);
}

static bool compare_guard(struct checker *checker) {
    const struct collective *collective = &checker->collective;
    size_t written =
        collective->in_place ? larger_buffer_bytes(collective) : collective->receive_bytes;
    if (checker->wrong)
        return true;
    if (!CUDA_OK(checker->measure, copy_to_host, checker->found, checker->receive + written,
                 GUARD_BYTES))
        return false;
    for (int i = 0; i < GUARD_BYTES && !checker->wrong; i++)
        if (checker->found[i] != UNTOUCHED) {
            snprintf(checker->finding, checker->finding_bytes,
                     "byte %d behind the end of the output was written", i);
            checker->wrong = true;
        }
    return true;
}

static bool compare_input(struct checker *checker) {
    const struct collective *collective = &checker->collective;
    if (collective->in_place || checker->wrong)
        return true;
    expect_rank(checker, collective->rank);
    return compare(checker, "the input, which must stay as it is,", checker->send, 0,
                   collective->send_bytes / collective->element_bytes);
}

/* Page-locked, so that the GPU copies at its own speed. */
static bool reserve_host(struct tuccl_measure *measure) {
    return measure->host_memory != NULL ||
           CUDA_OK(measure, allocate_host, &measure->host_memory, 2 * PATTERN_BYTES, 0);
}

static int check(struct tuccl_measure *measure, const struct tuccl_measure_call *call, size_t shift,
                 struct checker *checker) {
    const struct member *member = session_enter(measure) ? session_member(measure, call) : NULL;
    struct collective *collective = &checker->collective;
    if (member == NULL ||
        !make_collective(collective, call->operation, call->data_type, call->size_bytes,
                         call->in_place != 0, member->ranks, member->rank, &measure->failure) ||
        !session_reserve(measure, call->size_bytes + shift * collective->element_bytes))
        return -1;
    checker->measure = measure;
    checker->communicator = member->communicator;
    checker->receive = measure->buffers.receive + shift * collective->element_bytes;
    checker->send = call->in_place ? checker->receive
                                   : measure->buffers.send + shift * collective->element_bytes;
    if (!reserve_host(measure))
        return -1;
    checker->expected = measure->host_memory;
    checker->found = checker->expected + PATTERN_BYTES;
    checker->elements = call->size_bytes / collective->element_bytes;
    if (checker->elements > PATTERN_ELEMENTS)
        checker->elements = PATTERN_ELEMENTS;
    bool done = put_input(checker) && run_once(checker, call->use_graph != 0) &&
                compare_output(checker) && compare_guard(checker) && compare_input(checker) &&
                check_averages(checker, call->use_graph != 0);
    return done ? checker->wrong : -1;
}

int tuccl_measure_check(struct tuccl_measure *measure, const struct tuccl_measure_call *call,
                        char *finding, size_t finding_bytes) {
    struct checker checker = {.finding = finding, .finding_bytes = finding_bytes};
    return check(measure, call, 0, &checker);
}

int tuccl_measure_check_order(struct tuccl_measure *measure, const struct tuccl_measure_call *call,
                              int local_ranks, int shift, char *finding, size_t finding_bytes) {
    bool reduces = call->operation >= 0 && call->operation < TUCCL_OPERATIONS &&
                   tuccl_is_reduction((uint32_t)call->operation);
    if (!reduces || !type_rounds((enum data_type)call->data_type) || local_ranks < 1 || shift < 0) {
        fail(&measure->failure, "operation %d of data type %d adds nothing that rounds",
             call->operation, call->data_type);
        return -1;
    }
    struct checker checker = {
        .finding = finding, .finding_bytes = finding_bytes, .local_ranks = local_ranks};
    return check(measure, call, (size_t)shift, &checker);
}
