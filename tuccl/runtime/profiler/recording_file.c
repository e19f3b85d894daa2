/* Writes a process's recording: JSON, from a buffer of its own, to a file that replaces the last.
 */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "recording.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 16, LONGEST_PIECE = 512 };

struct output {
    int file;
    bool failed;
    size_t used;
    char buffer[BUFFER_BYTES];
};

static void flush(struct output *output) {
    size_t done = 0;
    while (!output->failed && done < output->used) {
        ssize_t written = write(output->file, output->buffer + done, output->used - done);
        if (written > 0)
            done += (size_t)written;
        else if (written == 0 || errno != EINTR)
            output->failed = true;
    }
    output->used = 0;
}

/* Pieces are shorter than LONGEST_PIECE. */
__attribute__((format(printf, 2, 3))) static void put(struct output *output, const char *format,
                                                      ...) {
    if (output->used + LONGEST_PIECE > BUFFER_BYTES)
        flush(output);
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(output->buffer + output->used, LONGEST_PIECE, format, arguments);
    va_end(arguments);
    if (length < 0 || length >= LONGEST_PIECE)
        output->failed = true;
    else
        output->used += (size_t)length;
}

/* Names come from tables of ours and need no escapes. */
static void put_name(struct output *output, const char *member, const char *name) {
    if (name == NULL)
        put(output, ",\"%s\":null", member);
    else
        put(output, ",\"%s\":\"%s\"", member, name);
}

static void put_answer(struct output *output, const char *member, uint8_t answer) {
    put(output, ",\"%s\":%s", member,
        answer == RECORDED_UNKNOWN ? "null"
        : answer == RECORDED_YES   ? "true"
                                   : "false");
}

static void put_number(struct output *output, const char *member, int number, bool is_known) {
    if (is_known)
        put(output, ",\"%s\":%d", member, number);
    else
        put(output, ",\"%s\":null", member);
}

static uint64_t times(uint64_t count, uint64_t bytes) {
    uint64_t product;
    return __builtin_mul_overflow(count, bytes, &product) ? UINT64_MAX : product;
}

static void put_call(struct output *output, const struct tuccl_counted_call *counted) {
    const struct tuccl_recorded_call *call = &counted->call;
    uint64_t element_bytes = tuccl_element_bytes(call->datatype);
    put(output, "{\"operation\":\"%s\"", tuccl_call_name(call->operation));
    put_name(output, "datatype", tuccl_datatype_name(call->datatype));
    put_name(output, "reduction", tuccl_reduction_name(call->reduction));
    put_answer(output, "in_place", call->in_place);
    put_answer(output, "graph", call->graph);
    put(output, ",\"calls\":%" PRIu64, counted->calls);
    if (counted->has_count)
        put(output, ",\"bytes\":%" PRIu64 "}", times(call->count, element_bytes));
    else
        put(output, ",\"total_bytes\":%" PRIu64 "}", times(counted->elements, element_bytes));
}

static void put_calls(struct output *output, const struct tuccl_call_table *table) {
    struct tuccl_counted_call counted;
    const char *separator = "";
    size_t claimed = tuccl_call_table_claimed(table);
    for (size_t place = 0; place < claimed; place++)
        if (tuccl_call_table_read(table, place, &counted)) {
            put(output, "%s\n  ", separator);
            put_call(output, &counted);
            separator = ",";
        }
}

static void put_communicator(struct output *output,
                             const struct tuccl_recorded_communicator *communicator) {
    int rank = __atomic_load_n(&communicator->rank, __ATOMIC_ACQUIRE);
    put(output, " {\"hash\":\"%016" PRIx64 "\"",
        __atomic_load_n(&communicator->hash, __ATOMIC_RELAXED));
    put_number(output, "rank", rank, rank >= 0);
    put_number(output, "ranks", communicator->ranks, communicator->ranks > 0);
    put_number(output, "nodes", communicator->nodes, communicator->nodes > 0);
    put(output, ",\"calls\":[");
    put_calls(output, communicator->table);
    put(output, "]}");
}

/* Calls that TuCCL's executor ran, which NCCL does not see. */
static uint64_t executor_calls(void) {
    void *symbol = dlsym(RTLD_DEFAULT, "tuccl_executor_calls");
    uint64_t (*ask)(void) = (uint64_t (*)(void))(uintptr_t)symbol;
    return ask == NULL ? 0 : ask();
}

static void put_recording(struct output *output, const struct tuccl_recording *recording) {
    put(output, "{\"format\":\"tuccl-recording\",\"version\":1,\"host\":\"%s\",\"process\":%ld",
        recording->host, recording->process);
    put(output, ",\"profiler_abi\":%d,\"executor_calls\":%" PRIu64, recording->abi,
        executor_calls());
    put(output, ",\n\"communicators_left_out\":%" PRIu64 ",\"calls_left_out\":%" PRIu64,
        __atomic_load_n(&recording->communicators_left_out, __ATOMIC_RELAXED),
        __atomic_load_n(&recording->calls_left_out, __ATOMIC_RELAXED));
    put(output, ",\n\"communicators\":[");
    uint32_t used = __atomic_load_n(&recording->communicators_used, __ATOMIC_ACQUIRE);
    const char *separator = "\n";
    for (uint32_t i = 0; i < used && i < RECORDED_COMMUNICATORS; i++) {
        const struct tuccl_recorded_communicator *communicator = &recording->communicators[i];
        if (__atomic_load_n(&communicator->table, __ATOMIC_ACQUIRE) == NULL)
            continue;
        put(output, "%s", separator);
        put_communicator(output, communicator);
        separator = ",\n";
    }
    put(output, "]}\n");
}

static bool write_to(int file, const struct tuccl_recording *recording) {
    static struct output output;
    output.file = file;
    output.failed = false;
    output.used = 0;
    put_recording(&output, recording);
    flush(&output);
    return !output.failed;
}

bool tuccl_recording_write(const struct tuccl_recording *recording) {
    char path[PATH_MAX], fresh[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s.%ld.%" PRIx64 ".json", recording->directory,
                          recording->host, recording->process, recording->began_ns);
    int fresh_length = snprintf(fresh, sizeof fresh, "%s.new", path);
    if (length < 0 || fresh_length < 0 || (size_t)fresh_length >= sizeof fresh) {
        errno = ENAMETOOLONG;
        return false;
    }
    int file = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (file < 0)
        return false;
    errno = 0;
    bool written = write_to(file, recording);
    int error = errno;
    written = close(file) == 0 && written;
    if (written && rename(fresh, path) == 0)
        return true;
    error = error != 0 ? error : errno;
    unlink(fresh);
    errno = error;
    return false;
}
