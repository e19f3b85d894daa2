/* NCCL by path: one library, one collective at a time. */
#ifndef TUCCL_MEASURE_NCCL_CALLS_H
#define TUCCL_MEASURE_NCCL_CALLS_H

#include "collective.h"
#include "cuda_driver.h"

enum { NCCL_ID_BYTES = 128, NCCL_SUM = 0, NCCL_AVERAGE = 4, NCCL_SYMMETRIC_WINDOW = 1 };

typedef struct nccl_communicator *nccl_communicator;
/* Of any type. */
typedef void (*nccl_function)(void);

struct nccl_id {
    char internal[NCCL_ID_BYTES];
};

struct nccl {
    int (*version)(int *version);
    const char *(*error_string)(int result);
    const char *(*last_error)(nccl_communicator communicator); /* NULL before 2.13. */
    int (*unique_id)(struct nccl_id *id);
    int (*join)(nccl_communicator *communicator, int ranks, struct nccl_id id, int rank);
    int (*split)(nccl_communicator parent, int colour, int key, nccl_communicator *made,
                 void *configuration);
    int (*abort)(nccl_communicator communicator);
    int (*destroy)(nccl_communicator communicator);
    int (*async_error)(nccl_communicator communicator, int *error);
    /* Memory for windows, and windows; NULL before 2.27. */
    int (*mem_alloc)(void **memory, size_t bytes);
    int (*mem_free)(void *memory);
    int (*add_window)(nccl_communicator communicator, void *memory, size_t bytes, void **window,
                      int flags);
    int (*remove_window)(nccl_communicator communicator, void *window);
    nccl_function collectives[TUCCL_OPERATIONS]; /* NULL if this version lacks it. */
};

bool nccl_load(struct nccl *nccl, const char *path, struct failure *failure);

/* Returns whether an NCCL call succeeded; records a failed call with NCCL's message. */
bool nccl_succeeded(const struct nccl *nccl, nccl_communicator communicator, int result,
                    const char *call, struct failure *failure);

/* Puts one collective on the stream. */
bool nccl_enqueue(const struct nccl *nccl, nccl_communicator communicator,
                  const struct collective *collective, device_pointer send, device_pointer receive,
                  cuda_stream stream, struct failure *failure);

#endif
