/* The reason of a failure, as a sentence for the user. */
#ifndef TUCCL_MEASURE_FAILURE_H
#define TUCCL_MEASURE_FAILURE_H

#include <stdbool.h>

struct failure {
    char text[512];
    /* GPU or communicator are in an unknown state and cannot be used again. */
    bool broken;
};

/* Records the reason; returns false, so that callers can return it. */
bool fail(struct failure *failure, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* As fail, if the session cannot go on. */
#define fail_broken(failure, ...) ((failure)->broken = true, fail(failure, __VA_ARGS__))

#endif
