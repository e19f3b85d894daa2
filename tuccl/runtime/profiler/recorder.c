#include "recorder.h"
#include "recording.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum state { UNUSED, STARTING, RECORDING, IDLE };

/* The file is written again after a second, and after a 64th of the time so far: what a killed
 * process loses is small, and the processes of a large job spare the file system. */
static const uint64_t least_interval_ms = 1000, share_of_time = 64;
/* Writing takes at most a thousandth of the time, however slow the file system is. */
static const uint64_t write_times_apart = 1000;
/* Reading the clock takes longer than counting. */
static const uint64_t always_timed = 64, timed_of_the_rest = 16;
static const rlim_t least_file_bytes = 64 << 20; /* A larger file would end the process. */

static struct tuccl_recording recording;
static int state = UNUSED;
static int is_writing;
static int has_warned;
static uint64_t began_ms, next_write_ms;
static int communicators_in_use;

static void warn(const char *text, const char *detail) {
    if (__atomic_exchange_n(&has_warned, 1, __ATOMIC_RELAXED) != 0)
        return;
    char line[PATH_MAX];
    int length = snprintf(line, sizeof line, "tuccl: TUCCL_RECORD=%s %s%s; nothing is recorded\n",
                          recording.directory, text, detail);
    if (length > 0 && (size_t)length < sizeof line &&
        write(STDERR_FILENO, line, (size_t)length) < 0)
        return;
}

static uint64_t now_ns(clockid_t clock) {
    struct timespec time;
    return clock_gettime(clock, &time) == 0
               ? (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec
               : 0;
}

static uint64_t now_ms(void) {
    return now_ns(CLOCK_MONOTONIC_COARSE) / 1000000;
}

static bool try_to_lock(void) {
    return __atomic_exchange_n(&is_writing, 1, __ATOMIC_ACQUIRE) == 0;
}

static void unlock(void) {
    __atomic_store_n(&is_writing, 0, __ATOMIC_RELEASE);
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static void write_locked(void) {
    int kept_errno = errno;
    uint64_t began = now_ns(CLOCK_MONOTONIC);
    if (!tuccl_recording_write(&recording)) {
        warn("cannot be written to: ", strerror(errno));
        __atomic_store_n(&state, IDLE, __ATOMIC_RELAXED);
    }
    uint64_t apart_ms = (now_ns(CLOCK_MONOTONIC) - began) * write_times_apart / 1000000;
    uint64_t now = now_ms();
    apart_ms = larger(apart_ms, larger(least_interval_ms, (now - began_ms) / share_of_time));
    __atomic_store_n(&next_write_ms, now + apart_ms, __ATOMIC_RELAXED);
    errno = kept_errno;
}

/* A process that was forked from the recorded one must not replace its file. */
static bool is_recording(void) {
    return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == RECORDING &&
           recording.process == (long)getpid();
}

static bool write_if_free(void) {
    if (!try_to_lock())
        return false;
    write_locked();
    unlock();
    return true;
}

static void write_if_due(void) {
    if (now_ms() >= __atomic_load_n(&next_write_ms, __ATOMIC_RELAXED) && is_recording())
        write_if_free();
}

/* Waits for a thread that is writing, but not for ever: it may be the one that calls exit. */
static void write_at_exit(void) {
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int tries = 0; is_recording() && tries < 1000 && !write_if_free(); tries++)
        nanosleep(&pause, NULL);
}

static void read_host_name(void) {
    if (gethostname(recording.host, sizeof recording.host) != 0)
        snprintf(recording.host, sizeof recording.host, "unknown");
    recording.host[sizeof recording.host - 1] = '\0';
    for (char *c = recording.host; *c != '\0'; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
              *c == '-' || *c == '.'))
            *c = '_';
}

static bool can_record(const char *directory) {
    struct stat status;
    struct rlimit limit;
    size_t length = strnlen(directory, sizeof recording.directory);
    if (length == sizeof recording.directory) {
        snprintf(recording.directory, sizeof recording.directory, "%.40s...", directory);
        warn("is too long a path", "");
        return false;
    }
    memcpy(recording.directory, directory, length + 1);
    if (directory[0] != '/')
        warn("is no absolute path", "");
    else if (stat(directory, &status) != 0)
        warn("cannot be used: ", strerror(errno));
    else if (!S_ISDIR(status.st_mode))
        warn("is no directory", "");
    else if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < least_file_bytes)
        warn("is not used: ulimit -f limits the size of files", "");
    else
        return true;
    return false;
}

static int start(int abi) {
    const char *directory = getenv("TUCCL_RECORD");
    if (directory == NULL || directory[0] == '\0')
        return IDLE;
    int kept_errno = errno;
    recording.abi = abi;
    recording.process = (long)getpid();
    recording.began_ns = now_ns(CLOCK_REALTIME);
    began_ms = now_ms();
    read_host_name();
    bool can = can_record(directory);
    if (can && atexit(write_at_exit) != 0) {
        warn("is not used: the process cannot call it at its end", "");
        can = false;
    }
    errno = kept_errno;
    return can ? RECORDING : IDLE;
}

bool tuccl_recorder_start(int abi) {
    int found = UNUSED;
    if (__atomic_compare_exchange_n(&state, &found, STARTING, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_ACQUIRE)) {
        found = start(abi);
        __atomic_store_n(&state, found, __ATOMIC_RELEASE);
    }
    while (found == STARTING) {
        sched_yield();
        found = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
    }
    return found == RECORDING;
}

struct tuccl_recorded_communicator *tuccl_recorder_add(uint64_t hash, int ranks, int nodes,
                                                       int rank) {
    if (!is_recording())
        return NULL;
    struct tuccl_call_table *table = tuccl_call_table_create();
    uint32_t number = RECORDED_COMMUNICATORS;
    if (table != NULL)
        number = __atomic_load_n(&recording.communicators_used, __ATOMIC_RELAXED);
    while (number < RECORDED_COMMUNICATORS &&
           !__atomic_compare_exchange_n(&recording.communicators_used, &number, number + 1, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        continue;
    if (number >= RECORDED_COMMUNICATORS) {
        tuccl_call_table_free(table);
        __atomic_fetch_add(&recording.communicators_left_out, 1, __ATOMIC_RELAXED);
        return NULL;
    }
    struct tuccl_recorded_communicator *communicator = &recording.communicators[number];
    __atomic_store_n(&communicator->hash, hash, __ATOMIC_RELAXED);
    __atomic_store_n(&communicator->rank, rank, __ATOMIC_RELAXED);
    communicator->ranks = ranks;
    communicator->nodes = nodes;
    __atomic_store_n(&communicator->table, table, __ATOMIC_RELEASE);
    __atomic_fetch_add(&communicators_in_use, 1, __ATOMIC_RELAXED);
    write_if_due();
    return communicator;
}

void tuccl_recorder_name(struct tuccl_recorded_communicator *communicator, uint64_t hash,
                         int rank) {
    if (__atomic_load_n(&communicator->rank, __ATOMIC_RELAXED) >= 0)
        return;
    __atomic_store_n(&communicator->hash, hash, __ATOMIC_RELAXED);
    __atomic_store_n(&communicator->rank, rank, __ATOMIC_RELEASE);
}

int tuccl_recorder_rank(const struct tuccl_recorded_communicator *communicator) {
    return __atomic_load_n(&communicator->rank, __ATOMIC_RELAXED);
}

void tuccl_recorder_count(struct tuccl_recorded_communicator *communicator,
                          const struct tuccl_recorded_call *call) {
    uint64_t before = 0;
    if (!tuccl_call_table_count(communicator->table, call, &before))
        __atomic_fetch_add(&recording.calls_left_out, 1, __ATOMIC_RELAXED);
    if (before < always_timed || before % timed_of_the_rest == 0)
        write_if_due();
}

void tuccl_recorder_count_unreadable(void) {
    __atomic_fetch_add(&recording.calls_left_out, 1, __ATOMIC_RELAXED);
}

void tuccl_recorder_end(struct tuccl_recorded_communicator *communicator) {
    if (__atomic_exchange_n(&communicator->is_over, true, __ATOMIC_RELAXED))
        return;
    if (__atomic_sub_fetch(&communicators_in_use, 1, __ATOMIC_RELAXED) > 0)
        write_if_due();
    else if (is_recording())
        write_if_free();
}
