/* Preloaded into processes of a host whose clock is a day ahead. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    const int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME) {
        now->tv_sec += 24 * 3600;
    }
    return failed;
}
