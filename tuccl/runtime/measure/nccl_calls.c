#include "nccl_calls.h"

#include <dlfcn.h>
#include <string.h>

static const char *const collective_names[TUCCL_OPERATIONS] = {
#define X(NAME, nccl_name, name, flow) "nccl" #nccl_name,
    TUCCL_COLLECTIVES(X)
#undef X
};

/* NCCL's functions, by what they take beside their buffers: nothing, a reduction, a root, or both.
 */
typedef int (*plain_function)(const void *, void *, size_t, int, nccl_communicator, cuda_stream);
typedef int (*function_of_one)(const void *, void *, size_t, int, int, nccl_communicator,
                               cuda_stream);
typedef int (*function_of_both)(const void *, void *, size_t, int, int, int, nccl_communicator,
                                cuda_stream);

/* Handle of a preloaded executor, whose functions replace NCCL's as in a job. No other global
 * symbol does, since the NCCL to measure is named. */
static void *find_interposer(void) {
    void *global = dlopen(NULL, RTLD_NOW);
    return global != NULL && dlsym(global, "tuccl_executor_calls") != NULL ? global : NULL;
}

static void *find_function(void *interposer, void *library, const char *name) {
    void *address = interposer != NULL ? dlsym(interposer, name) : NULL;
    return address != NULL ? address : dlsym(library, name);
}

bool nccl_load(struct nccl *nccl, const char *path, struct failure *failure) {
    /* Never closed: NCCL leaves threads behind. */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return fail(failure, "NCCL cannot be loaded (%s)", dlerror());
    const struct {
        const char *name;
        void *slot;
        bool optional;
    } symbols[] = {
        {"ncclGetVersion", &nccl->version, false},
        {"ncclGetErrorString", &nccl->error_string, false},
        {"ncclGetLastError", &nccl->last_error, true},
        {"ncclGetUniqueId", &nccl->unique_id, false},
        {"ncclCommInitRank", &nccl->join, false},
        {"ncclCommSplit", &nccl->split, false},
        {"ncclCommAbort", &nccl->abort, false},
        {"ncclCommDestroy", &nccl->destroy, false},
        {"ncclCommGetAsyncError", &nccl->async_error, false},
        {"ncclMemAlloc", &nccl->mem_alloc, true},
        {"ncclMemFree", &nccl->mem_free, true},
        {"ncclCommWindowRegister", &nccl->add_window, true},
        {"ncclCommWindowDeregister", &nccl->remove_window, true},
    };
    void *interposer = find_interposer();
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = find_function(interposer, library, symbols[i].name);
        if (address == NULL && !symbols[i].optional)
            return fail(failure, "%s has no %s: it is no NCCL that TuCCL knows", path,
                        symbols[i].name);
        *(void **)symbols[i].slot = address;
    }
    for (uint32_t i = 0; i < TUCCL_OPERATIONS; i++) {
        void *address = find_function(interposer, library, collective_names[i]);
        if (address == NULL && tuccl_asks_tuner(i))
            return fail(failure, "%s has no %s: it is no NCCL that TuCCL knows", path,
                        collective_names[i]);
        *(void **)&nccl->collectives[i] = address;
    }
    return true;
}

bool nccl_succeeded(const struct nccl *nccl, nccl_communicator communicator, int result,
                    const char *call, struct failure *failure) {
    if (result == 0)
        return true;
    const char *detail = nccl->last_error != NULL ? nccl->last_error(communicator) : NULL;
    bool told = detail != NULL && detail[0] != '\0';
    return fail_broken(failure, "%s failed: %s (%d)%s%.300s", call, nccl->error_string(result),
                       result, told ? "; NCCL says: " : "", told ? detail : "");
}

bool nccl_enqueue(const struct nccl *nccl, nccl_communicator communicator,
                  const struct collective *collective, device_pointer send, device_pointer receive,
                  cuda_stream stream, struct failure *failure) {
    const void *from = (const void *)(uintptr_t)(send + collective->send_offset);
    void *to = (void *)(uintptr_t)(receive + collective->receive_offset);
    size_t count = collective->count;
    int type = (int)collective->type, result;
    const char *name = collective_names[collective->operation];
    nccl_function call = nccl->collectives[collective->operation];
    bool reduces = tuccl_is_reduction(collective->operation);
    bool has_root = tuccl_has_root(collective->operation);
    int reduction = collective->averages ? NCCL_AVERAGE : NCCL_SUM;
    if (call == NULL)
        return fail(failure, "this NCCL has no %s", name);
    if (reduces && has_root)
        result =
            ((function_of_both)call)(from, to, count, type, reduction, 0, communicator, stream);
    else if (reduces || has_root)
        result = ((function_of_one)call)(from, to, count, type, reduces ? reduction : 0,
                                         communicator, stream);
    else
        result = ((plain_function)call)(from, to, count, type, communicator, stream);
    return nccl_succeeded(nccl, communicator, result, name, failure);
}
