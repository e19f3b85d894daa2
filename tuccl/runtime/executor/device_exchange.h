/* What the host side asks of CUDA at a communicator's start, beside executor.h: which device is
 * current, a few bytes of device memory with a stream of their own for telling the other ranks
 * something through NCCL, and later whether a stream is being captured. */
#ifndef TUCCL_EXECUTOR_DEVICE_EXCHANGE_H
#define TUCCL_EXECUTOR_DEVICE_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The calling thread's state that set-up changes. */
struct tuccl_device_scope {
    int device;
    int capture_mode;
};

/* Makes a device current, and allows what a capture in another thread would forbid (allocation).
 * 0, or a cudaError_t; tuccl_device_leave puts everything back. */
int tuccl_device_enter(int device, struct tuccl_device_scope *before);
void tuccl_device_leave(const struct tuccl_device_scope *before);

/* A stream's own number, since addresses come back, and that of the capture that it is in, 0 when
 * in none. Equal numbers mean the same one. */
struct tuccl_stream_state {
    uint64_t number;
    uint64_t capture;
};
struct tuccl_stream_state tuccl_device_stream(void *stream);

/* Device memory for `bytes` of every rank, and a stream that waits for no other. */
struct tuccl_exchange;
struct tuccl_exchange_view {
    void *stream; /* A cudaStream_t. */
    const void *send;
    void *receive;
};

/* On the current device. NULL on success, else half a sentence that says why not. */
const char *tuccl_exchange_create(struct tuccl_exchange **exchange, size_t bytes, uint32_t ranks);
struct tuccl_exchange_view tuccl_exchange_view(const struct tuccl_exchange *exchange);

/* Puts this rank's bytes into the send buffer, behind what is on the stream. 0, or a cudaError_t.
 */
int tuccl_exchange_write(struct tuccl_exchange *exchange, const void *mine);
/* Whether everything on the stream has ended: 1, 0 while it runs, negative when it failed. */
int tuccl_exchange_ended(const struct tuccl_exchange *exchange);
/* Everybody's bytes, by rank; after tuccl_exchange_ended said 1. 0, or a cudaError_t. */
int tuccl_exchange_read(struct tuccl_exchange *exchange, void *all);
/* Waits for what is on the stream. */
void tuccl_exchange_destroy(struct tuccl_exchange *exchange);

#ifdef __cplusplus
}
#endif

#endif
