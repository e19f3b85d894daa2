/* CUDA functions for the host side at a communicator's start, beside executor.h: the current
 * device, a small buffer and stream for exchanges with other ranks through NCCL, and whether a
 * stream is being captured. */
#ifndef TUCCL_EXECUTOR_DEVICE_EXCHANGE_H
#define TUCCL_EXECUTOR_DEVICE_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* State of the calling thread that set-up changes. */
struct tuccl_device_scope {
    int device;
    int capture_mode;
};

/* Makes a device current, and allows calls that a capture in another thread would forbid
 * (allocation). Returns 0 or a cudaError_t; tuccl_device_leave restores the state. */
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

/* Copies this rank's bytes into the send buffer in stream order. Returns 0 or a cudaError_t. */
int tuccl_exchange_write(struct tuccl_exchange *exchange, const void *mine);
/* Returns 1 if all work on the stream has ended, 0 while it runs, negative after a failure. */
int tuccl_exchange_ended(const struct tuccl_exchange *exchange);
/* Copies all ranks' bytes, by rank, after tuccl_exchange_ended returned 1. Returns 0 or a
 * cudaError_t. */
int tuccl_exchange_read(struct tuccl_exchange *exchange, void *all);
/* Waits for all work on the stream. */
void tuccl_exchange_destroy(struct tuccl_exchange *exchange);

#ifdef __cplusplus
}
#endif

#endif
