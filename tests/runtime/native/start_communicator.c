/* A job of one rank: starts a communicator of libnccl.so.2, which loads its tuner plugin, ends it.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

struct id {
    char internal[128];
};

typedef int (*get_id)(struct id *id);
typedef int (*start)(void **communicator, int ranks, struct id id, int rank);
typedef int (*end)(void *communicator);

int main(void) {
    void *nccl = dlopen("libnccl.so.2", RTLD_NOW);
    if (nccl == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    get_id ask = (get_id)(uintptr_t)dlsym(nccl, "ncclGetUniqueId");
    start begin = (start)(uintptr_t)dlsym(nccl, "ncclCommInitRank");
    end finish = (end)(uintptr_t)dlsym(nccl, "ncclCommDestroy");
    struct id id;
    void *communicator = NULL;
    if (ask(&id) != 0 || begin(&communicator, 1, id, 0) != 0)
        return 1;
    return finish(communicator);
}
