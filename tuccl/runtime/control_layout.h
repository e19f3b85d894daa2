/* The control block: a file mapped by a measuring process and by the plugin in it, through which
 * the configuration changes between two calls without a new communicator.
 * tuccl/measuring/engines/control_block.py declares the same layout for Python. Little-endian, no
 * padding. */
#ifndef TUCCL_CONTROL_LAYOUT_H
#define TUCCL_CONTROL_LAYOUT_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define TUCCL_CONTROL_MAGIC "TUCCLCTL"

enum {
    TUCCL_CONTROL_VERSION = 2,
    TUCCL_CONTROL_COSTS = 21, /* 7 algorithms x 3 protocols */
};

struct tuccl_control_block {
    char magic[8];
    uint32_t version;
    uint32_t block_bytes;
    /* Set by the measuring process, atomically: what tuccl_requested_choice of tuner_abi.h reads.
     */
    _Atomic uint64_t override;
    /* The plugin sets all fields below. ABI through which NCCL loaded it, and the process. */
    _Atomic uint32_t loaded_abi;
    _Atomic uint32_t loaded_pid;
    _Atomic uint64_t communicators;
    /* Calls that NCCL asked about; those with an override were either forced or refused. */
    _Atomic uint64_t asked;
    _Atomic uint64_t forced;
    _Atomic uint64_t refused;
    /* NCCL's last question, before the plugin changed anything; the sequence is odd during a
     * write. Costs are the estimates of NCCL's own model in us, -1 where an entry cannot run. */
    _Atomic uint32_t sequence;
    _Atomic int32_t function;
    _Atomic uint64_t bytes;
    _Atomic int32_t nchannels;
    _Atomic int32_t algorithms;
    _Atomic int32_t protocols;
    _Atomic float cost[TUCCL_CONTROL_COSTS]; /* [algorithm * protocols + protocol] */
    /* Parts of calls whose chunk size NCCL asked about (ABI v6 on), and those among them that got
     * a smaller one than NCCL's, and whose number of chunks it changes. */
    _Atomic uint64_t chunks_asked;
    _Atomic uint64_t chunks_changed;
};

static_assert(offsetof(struct tuccl_control_block, override) == 16, "override");
static_assert(offsetof(struct tuccl_control_block, loaded_abi) == 24, "loaded mark");
static_assert(offsetof(struct tuccl_control_block, asked) == 40, "counters");
static_assert(offsetof(struct tuccl_control_block, sequence) == 64, "last call");
static_assert(offsetof(struct tuccl_control_block, cost) == 92, "costs");
static_assert(offsetof(struct tuccl_control_block, chunks_asked) == 176, "chunks");
static_assert(sizeof(struct tuccl_control_block) == 192, "control block");

#endif
