#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "rail_request.h"

#include <dlfcn.h>

struct tuccl_rail_request *tuccl_rail_request_take(size_t ranks, size_t nodes) {
    void *symbol = dlsym(RTLD_DEFAULT, TUCCL_RAIL_REQUEST_FUNCTION);
    if (symbol == NULL)
        return NULL;
    tuccl_rail_request_function *ask = (tuccl_rail_request_function *)(uintptr_t)symbol;
    struct tuccl_rail_request *request = ask();
    /* Another communicator may start meanwhile, in another thread. */
    if (request == NULL || ranks != nodes || nodes != request->nodes)
        return NULL;
    __atomic_fetch_add(&request->takers, 1, __ATOMIC_SEQ_CST);
    return request;
}
