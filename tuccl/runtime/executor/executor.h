/* The executor's internal interface between the interposer on the host and the CUDA side.
 *
 * The host side (interposer, set-up of communicators, decisions) is C++ without CUDA headers; the
 * device side (kernels, staging, flags) is CUDA. This interface lets tests run the host side over a
 * stand-in without a GPU. It does not depend on NCCL: codes are TuCCL's own. */
#ifndef TUCCL_EXECUTOR_H
#define TUCCL_EXECUTOR_H

#include "program_layout.h"

#include <stddef.h>
#include <stdint.h>

enum {
    TUCCL_MAX_RANKS = TUCCL_PROGRAM_MOST_RANKS,
    /* Size of the handle by which peers map a rank's staging area. */
    TUCCL_HANDLE_BYTES = 128,
};

enum tuccl_protocol { TUCCL_LL = 0, TUCCL_LL128 = 1, TUCCL_SIMPLE = 2, TUCCL_PROTOCOLS = 3 };

/* In the order of ncclDataType_t. */
enum tuccl_type {
    TUCCL_INT8 = 0,
    TUCCL_UINT8 = 1,
    TUCCL_INT32 = 2,
    TUCCL_UINT32 = 3,
    TUCCL_INT64 = 4,
    TUCCL_UINT64 = 5,
    TUCCL_FLOAT16 = 6,
    TUCCL_FLOAT32 = 7,
    TUCCL_FLOAT64 = 8,
    TUCCL_BFLOAT16 = 9,
    TUCCL_TYPES = 10,
};

/* In the order of ncclRedOp_t. */
enum tuccl_reduction {
    TUCCL_SUM = 0,
    TUCCL_PROD = 1,
    TUCCL_MAX = 2,
    TUCCL_MIN = 3,
    TUCCL_AVG = 4,
    TUCCL_REDUCTIONS = 5,
};

/* One collective call. Pointers are device pointers, of any alignment. */
struct tuccl_call {
    const void *send;
    void *receive;
    size_t count; /* As NCCL counts: of the send buffer for all_gather, of the receive buffer for
                     reduce_scatter, per peer for alltoall. */
    uint8_t operation;
    uint8_t type;
    uint8_t reduction;
    uint8_t root;
    /* Tuned parameters. */
    uint8_t pattern;
    uint8_t protocol;
    uint16_t nchannels; /* Threadblocks of a pattern, instances of a program. */
    uint16_t nthreads;
    uint32_t program; /* Index in the section of programs; of a pattern none is looked at. */
    uint64_t buffer_bytes;
    /* Bytes from one rank's block to the next in the buffer that has several; 0: blocks are
     * adjacent. For patterns of all_gather and reduce_scatter. */
    uint64_t stride_bytes;
};

/* One communicator on one device, opaque to the host side. */
struct tuccl_device_comm;

/* The staging memory of a rank by use, 0 for calls that do not occur; the same on every rank. */
struct tuccl_staging {
    /* Patterns, by protocol: lines of one source in one half and phase. None of Simple. */
    uint32_t part_bytes[TUCCL_PROTOCOLS];
    uint32_t phases[TUCCL_PROTOCOLS];
    /* Programs: one half of each protocol's lines, and scratch chunks. */
    uint64_t half_bytes[TUCCL_PROTOCOLS];
    uint64_t scratch_bytes;
};

/* A rank among those of its node. */
struct tuccl_device_place {
    uint32_t rank;
    uint32_t ranks;
    bool
        spans_hosts; /* Whether NVLink joins several hosts to the node: peers map fabric handles. */
};

/* One rank alone has no peers: it serves nothing but what phases need.
 * Two calls create a communicator, with an exchange of all handles between them:
 *   tuccl_device_comm_create   takes staging memory on the current device, writes its handle;
 *   tuccl_device_comm_connect  opens the staging of the others from their handles, in rank order.
 * Both return NULL on success, else the reason in half a sentence (static text). */
const char *tuccl_device_comm_create(struct tuccl_device_comm **comm,
                                     struct tuccl_device_place place,
                                     const struct tuccl_staging *staging,
                                     unsigned char handle[TUCCL_HANDLE_BYTES]);
const char *tuccl_device_comm_connect(struct tuccl_device_comm *comm,
                                      const unsigned char (*handles)[TUCCL_HANDLE_BYTES]);

/* Whether NVLink joins all ranks, as LL128 requires; known after connecting. Ranks of other nodes
 * may lack it, and then this one forgoes it, so that all decide alike. */
int tuccl_device_has_nvlink(const struct tuccl_device_comm *comm);
void tuccl_device_forgo_nvlink(struct tuccl_device_comm *comm);

/* Loads the compiled programs of a bundle onto the device; the caller has checked the bytes
 * (tuccl/runtime/program.h). NULL on success. */
const char *tuccl_device_comm_load_programs(struct tuccl_device_comm *comm, const void *programs,
                                            size_t bytes);

/* Waits until its device is idle and ranks of other processes no longer write to its memory, for
 * the latter only briefly, and not after an abort. The caller waits for ranks of this process. No
 * launch may follow. Returns 0 if the memory is still in use. */
int tuccl_device_comm_quiesce(struct tuccl_device_comm *comm);

/* Waits until its device is idle. NULL is ignored. */
void tuccl_device_comm_destroy(struct tuccl_device_comm *comm);

/* Returns whether tuccl_device_launch can run such a call, by types, operations, staging and ranks.
 * Depends only on values that are equal on every rank (never on pointers), so that ranks agree. */
int tuccl_device_supports(const struct tuccl_device_comm *comm, const struct tuccl_call *call);

/* Enqueues the call on a stream (a cudaStream_t). Returns 0 or a cudaError_t. */
int tuccl_device_launch(struct tuccl_device_comm *comm, const struct tuccl_call *call,
                        void *stream);

/* For schedules across hosts: memory of this communicator for what lies between phases, streams
 * beside the job's, and events. Called once, after connecting; freed with the communicator. NULL on
 * success, else the reason in half a sentence. */
enum { TUCCL_DEVICE_MARKS = 96, TUCCL_DEVICE_SIDE_STREAMS = 16 };
const char *tuccl_device_prepare_phases(struct tuccl_device_comm *comm, size_t scratch_bytes,
                                        uint32_t streams);
void *tuccl_device_scratch(const struct tuccl_device_comm *comm);
void *tuccl_device_side_stream(const struct tuccl_device_comm *comm, uint32_t number);
/* Marks the current end of a stream's work, and makes another stream wait for a mark; also while
 * they are captured. Return 0 or a cudaError_t. */
int tuccl_device_mark(struct tuccl_device_comm *comm, uint32_t mark, void *stream);
int tuccl_device_await(struct tuccl_device_comm *comm, uint32_t mark, void *stream);

/* Reduces `summands` adjacent arrays of `count` elements each into `target`, in their order.
 * Returns 0 or a cudaError_t. */
int tuccl_device_sum(struct tuccl_device_comm *comm, const void *source, void *target, size_t count,
                     uint32_t summands, uint8_t type, uint8_t reduction, void *stream);

/* A step of a rank in a stage (tuccl/runtime/program_layout.h).
 * Each message of a stage has lines of its own at its receiver. */
struct tuccl_stage_step {
    uint8_t type;  /* enum tuccl_step_type: S, R, RRC (source and message), RE or CPY. */
    uint8_t flags; /* TUCCL_STEP_COMPLETES. */
    uint8_t source_buffer;
    uint8_t target_buffer;
    uint32_t source;
    uint32_t target;
    uint32_t chunks;
    uint32_t line;     /* Of the message: chunks that arrive at its receiver before it. */
    uint32_t receiver; /* Of S: its number on this node. */
};

/* One launch of a stage: on the same bytes of each chunk, on all ranks of a node. */
struct tuccl_stage_call {
    const void *send;
    void *receive;
    void *scratch;        /* Chunks one after the other. */
    uint64_t part_bytes;  /* A rank's part of the larger buffer, or all of it. */
    uint64_t chunk_bytes; /* Distance of a part's chunks; the last may be shorter or empty. */
    uint32_t part_chunks;
    uint32_t bytes; /* Of each chunk, from `first` on; multiples of 16. */
    uint64_t first;
    uint32_t first_step; /* Among those that were loaded. */
    uint32_t steps;
    uint32_t receivers; /* A bit for each rank of the node that this one sends to. */
    uint32_t divisor;   /* Of an average: all ranks of the communicator. */
    uint8_t type;
    uint8_t reduction;
    uint8_t protocol; /* TUCCL_LL or TUCCL_LL128. */
    uint16_t nchannels;
    uint16_t nthreads;
};

/* Loads the steps of this rank in all stages; called once, after connecting. NULL on success. */
const char *tuccl_device_load_stages(struct tuccl_device_comm *comm,
                                     const struct tuccl_stage_step *steps, size_t count);
/* Enqueues a launch of a stage, which all ranks of the node do. Its messages fit the staging memory
 * of its protocol. Returns 0 or a cudaError_t. */
int tuccl_device_run_stage(struct tuccl_device_comm *comm, const struct tuccl_stage_call *call,
                           void *stream);

/* Aborts all running and future kernels of this communicator; their results are undefined. */
void tuccl_device_abort(struct tuccl_device_comm *comm);

/* Orders later work on `after` behind current work on `before`. Returns 0 or a cudaError_t. */
int tuccl_device_order(struct tuccl_device_comm *comm, void *before, void *after);

/* The same in two steps, so that `before` may be destroyed between them. Not for captures. */
int tuccl_device_remember(struct tuccl_device_comm *comm, void *before);
int tuccl_device_order_remembered(struct tuccl_device_comm *comm, void *after);

/* For a communicator's start: the current device, a small buffer and stream for exchanges with
 * other ranks through NCCL, and what a stream is in. */

/* State of the calling thread that set-up changes. */
struct tuccl_device_scope {
    int device;
    int capture_mode;
};

/* Makes a device current, and allows calls that a capture in another thread would forbid
 * (allocation). Returns 0 or a cudaError_t; tuccl_device_leave restores the state. A thread of the
 * executor's own gives NULL and never leaves: it began on GPU 0, and to make that current again
 * would take a context there, some hundred MB of each process (cudaSetDevice, since CUDA 12). */
int tuccl_device_enter(int device, struct tuccl_device_scope *before);
void tuccl_device_leave(const struct tuccl_device_scope *before);

/* Free memory of the current device; 0 if it is not known. */
uint64_t tuccl_device_free_bytes(void);

/* A stream's id, since addresses are reused, and the id of its capture, 0 without one. */
struct tuccl_stream_state {
    uint64_t number;
    uint64_t capture;
};
struct tuccl_stream_state tuccl_device_stream(void *stream);

/* Device memory for `bytes` of every rank, and a non-blocking stream. */
struct tuccl_exchange;
struct tuccl_exchange_view {
    void *stream; /* A cudaStream_t. */
    const void *send;
    void *receive;
};

/* Uses the current device. Returns NULL on success, else the reason in half a sentence. */
const char *tuccl_exchange_create(struct tuccl_exchange **exchange, size_t bytes, uint32_t ranks);
struct tuccl_exchange_view tuccl_exchange_view(const struct tuccl_exchange *exchange);

/* Prepares to time what is on the stream, by so many marks; called once, before any work is on it.
 * NULL on success, else the reason in half a sentence. */
const char *tuccl_exchange_prepare_marks(struct tuccl_exchange *exchange, uint32_t marks);
/* Marks the current end of the stream's work. Returns 0 or a cudaError_t. */
int tuccl_exchange_mark(struct tuccl_exchange *exchange, uint32_t mark);
/* What is put on the stream from now on waits until the stream is released, for 100 ms at most.
 * Returns 0 or a cudaError_t. */
int tuccl_exchange_hold(struct tuccl_exchange *exchange);
void tuccl_exchange_release(struct tuccl_exchange *exchange);
/* The time from a mark to the next one, after all work has ended; negative after a failure. */
float tuccl_exchange_us_after(const struct tuccl_exchange *exchange, uint32_t mark);

/* Copies this rank's bytes into the send buffer in stream order. Returns 0 or a cudaError_t. */
int tuccl_exchange_write(struct tuccl_exchange *exchange, const void *mine);
/* Returns 1 if all work on the stream has ended, 0 while it runs, negative after a failure. */
int tuccl_exchange_ended(const struct tuccl_exchange *exchange);
/* Copies all ranks' bytes, by rank, after tuccl_exchange_ended returned 1. Returns 0 or a
 * cudaError_t. */
int tuccl_exchange_read(struct tuccl_exchange *exchange, void *all);
/* Waits for all work on the stream. */
void tuccl_exchange_destroy(struct tuccl_exchange *exchange);

/* For trials in the job (guard.h): slots of marks, of bytes that a rank sends, and of those that it
 * receives from all. Everything is put on a stream of the job's; nothing waits. */
struct tuccl_trials;
struct tuccl_trials_need {
    uint32_t slots;
    uint32_t marks; /* Of each. */
    uint32_t bytes; /* That a rank sends; multiples of 16. */
    uint32_t ranks;
};

/* Uses the current device. Returns NULL on success, else the reason in half a sentence. */
const char *tuccl_trials_create(struct tuccl_trials **trials, const struct tuccl_trials_need *need);
/* Marks the current end of a stream's work. Returns 0 or a cudaError_t. */
int tuccl_trials_mark(struct tuccl_trials *trials, uint32_t slot, uint32_t mark, void *stream);
/* The time from a mark to the next one; negative: the device is not so far, or failed. */
float tuccl_trials_us_after(const struct tuccl_trials *trials, uint32_t slot, uint32_t mark);
/* A slot's bytes on the host: this rank's, then those of all. */
unsigned char *tuccl_trials_bytes(const struct tuccl_trials *trials, uint32_t slot);
/* Copies this rank's bytes to where they are sent from, in stream order: they must not change until
 * all ranks' bytes have come. Returns 0 or a cudaError_t. */
int tuccl_trials_write(struct tuccl_trials *trials, uint32_t slot, void *stream);
struct tuccl_trials_view {
    const void *send;
    void *receive;
};
struct tuccl_trials_view tuccl_trials_view(const struct tuccl_trials *trials, uint32_t slot);
/* Copies all ranks' bytes to the host, in stream order. Returns 0 or a cudaError_t. */
int tuccl_trials_read(struct tuccl_trials *trials, uint32_t slot, void *stream);
/* Returns 1 if they have come, 0 if not yet, negative after a failure. */
int tuccl_trials_came(const struct tuccl_trials *trials, uint32_t slot);
/* Keeps it for another communicator of this process, because freeing would wait for the device.
 * NULL is ignored. */
void tuccl_trials_retire(struct tuccl_trials *trials);

namespace tuccl {

// Is in a device, as tuccl_device_enter says, during its life; false where that failed.
class InDevice {
  public:
    explicit InDevice(int device) : has_entered_(tuccl_device_enter(device, &before_) == 0) {
    }
    ~InDevice() {
        if (has_entered_)
            tuccl_device_leave(&before_);
    }
    InDevice(const InDevice &) = delete;
    InDevice &operator=(const InDevice &) = delete;

    explicit operator bool() const {
        return has_entered_;
    }

  private:
    tuccl_device_scope before_ = {};
    bool has_entered_;
};

} // namespace tuccl

#endif
