/* A job in C: three ranks as threads, one all_reduce each, then the same in a group. It knows
 * nothing of the executor. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 3, COUNT = 1000, INT32 = 2, SUM = 0 };

struct id {
    char internal[128];
};
int ncclGetUniqueId(struct id *id);
int ncclCommInitRank(void **comm, int ranks, struct id id, int rank);
int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclCommDestroy(void *comm);
/* Not every NCCL has it. */
int ncclCommFinalize(void *comm) __attribute__((weak));
void *stand_in_stream_create(void);
void stand_in_stream_wait(void *stream);
void stand_in_stream_destroy(void *stream);

static struct id id;
static int data[RANKS][COUNT];
static int finalized[RANKS];

static void check(int result) {
    if (result != 0) {
        fprintf(stderr, "NCCL said %d\n", result);
        exit(1);
    }
}

static void *run(void *argument) {
    int rank = (int)(size_t)argument;
    void *comm = NULL;
    void *stream = stand_in_stream_create();
    for (int i = 0; i < COUNT; i++)
        data[rank][i] = i + rank;
    check(ncclCommInitRank(&comm, RANKS, id, rank));
    check(ncclAllReduce(data[rank], data[rank], COUNT, INT32, SUM, comm, stream));
    check(ncclGroupStart());
    check(ncclAllReduce(data[rank], data[rank], COUNT, INT32, SUM, comm, stream));
    check(ncclGroupEnd());
    stand_in_stream_wait(stream);
    if (ncclCommFinalize != NULL)
        finalized[rank] = ncclCommFinalize(comm);
    check(ncclCommDestroy(comm));
    stand_in_stream_destroy(stream);
    return NULL;
}

int job(void) {
    pthread_t threads[RANKS];
    check(ncclGetUniqueId(&id));
    for (size_t rank = 0; rank < RANKS; rank++)
        check(pthread_create(&threads[rank], NULL, run, (void *)rank));
    for (size_t rank = 0; rank < RANKS; rank++)
        check(pthread_join(threads[rank], NULL));
    for (int rank = 0; rank < RANKS; rank++)
        for (int i = 0; i < COUNT; i++)
            if (data[rank][i] != RANKS * (RANKS * i + 3)) {
                fprintf(stderr, "rank %d, element %d: %d\n", rank, i, data[rank][i]);
                return 1;
            }
    printf("right, finalize said %d\n", finalized[0]);
    return 0;
}
