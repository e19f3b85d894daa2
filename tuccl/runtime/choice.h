/* What a tuner may choose. */
#ifndef TUCCL_CHOICE_H
#define TUCCL_CHOICE_H

#include "tuner_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A built-in configuration, by NCCL's cost table indices. */
struct tuccl_choice {
    uint64_t min_bytes;
    uint64_t max_bytes;
    uint8_t algorithm;
    uint8_t protocol;
    uint16_t nchannels; /* 0: NCCL's own count. */
    float builtin_time_us;
    float default_time_us;
};

/* Returns whether NCCL takes a tuner's channel count for this algorithm without a bound (NCCL 2.30
 * src/enqueue.cc), even above the communicator's channels. */
static inline bool tuccl_channels_are_unbounded(uint8_t algorithm, size_t nodes) {
    return algorithm == NCCL_ALGO_COLLNET_DIRECT || algorithm == NCCL_ALGO_COLLNET_CHAIN ||
           (algorithm == NCCL_ALGO_NVLS && nodes > 1);
}

#endif
