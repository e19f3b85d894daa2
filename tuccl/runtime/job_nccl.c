#define _GNU_SOURCE /* dladdr */
#include "job_nccl.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int (*get_version)(int *version);

/* Returns 0 if unknown. A process may hold several NCCLs and export none, so the library that
 * contains the logger is asked. */
static int version_of_caller(tuccl_nccl_logger logger) {
    Dl_info info;
    int version = 0;
    if (logger == NULL || dladdr((void *)(uintptr_t)logger, &info) == 0 || info.dli_fname == NULL)
        return 0;
    void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL)
        return 0;
    void *symbol = dlsym(library, "ncclGetVersion");
    get_version ask = (get_version)(uintptr_t)symbol;
    if (ask != NULL && ask(&version) != NCCL_SUCCESS)
        version = 0;
    dlclose(library);
    return version;
}

bool tuccl_other_nccl(tuccl_nccl_logger logger, const char *wanted, char *found) {
    int version = version_of_caller(logger);
    if (version < 10000 || version > 999999)
        return false;
    snprintf(found, 16, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return strcmp(found, wanted) != 0;
}
