/* The control block: a file that a measuring process and the plugin in it map both, through which
 * the plugin gets another configuration between two calls without a new communicator.
 * tuccl/engines/control_block.py is the same page for Python. Little-endian, no padding. */
#ifndef TUCCL_CONTROL_LAYOUT_H
#define TUCCL_CONTROL_LAYOUT_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define TUCCL_CONTROL_MAGIC "TUCCLCTL"

enum {
    TUCCL_CONTROL_VERSION = 1,
    TUCCL_CONTROL_COSTS = 21, /* 7 algorithms x 3 protocols */
    TUCCL_CONTROL_NO_WISH = 0xFF,
};

struct tuccl_control_block {
    char magic[8];
    uint32_t version;
    uint32_t block_bytes;
    /* By the measuring process, in one word so that no call sees half of it: bits 0 to 7 algorithm
     * (TUCCL_CONTROL_NO_WISH: leave NCCL alone), 8 to 15 protocol, 16 to 31 channels (0: NCCL's
     * count). */
    _Atomic uint64_t wish;
    /* All from here on by the plugin. The mark that NCCL loaded it, and through which ABI. */
    _Atomic uint32_t loaded_abi;
    _Atomic uint32_t loaded_pid;
    _Atomic uint64_t communicators;
    /* Calls that NCCL asked about; those with a wish were either forced or refused. */
    _Atomic uint64_t asked;
    _Atomic uint64_t forced;
    _Atomic uint64_t refused;
    /* What NCCL asked last, before the plugin changed anything; the sequence is odd while it is
     * being written. Costs are those of NCCL's own model in us, -1 where something cannot run. */
    _Atomic uint32_t sequence;
    _Atomic int32_t function;
    _Atomic uint64_t bytes;
    _Atomic int32_t nchannels;
    _Atomic int32_t algorithms;
    _Atomic int32_t protocols;
    _Atomic float cost[TUCCL_CONTROL_COSTS]; /* [algorithm * protocols + protocol] */
};

static_assert(offsetof(struct tuccl_control_block, wish) == 16, "wish");
static_assert(offsetof(struct tuccl_control_block, loaded_abi) == 24, "loaded mark");
static_assert(offsetof(struct tuccl_control_block, asked) == 40, "counters");
static_assert(offsetof(struct tuccl_control_block, sequence) == 64, "last call");
static_assert(offsetof(struct tuccl_control_block, cost) == 92, "costs");
static_assert(sizeof(struct tuccl_control_block) == 176, "control block");

#endif
