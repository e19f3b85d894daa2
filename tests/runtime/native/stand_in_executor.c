/* A libtuccl-executor.so for tests without a GPU, over the stand-in of NCCL: it takes calls of one
 * rule, counts them, and lets NCCL do them. Like the real one it knows no Simple patterns. With
 * STAND_IN_EXECUTOR_SPOILS its all_gather leaves out half of what it is to send. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RULE_CHARACTERS = 200 };

static char chosen[RULE_CHARACTERS];
static uint64_t calls;

#define EXPORTED __attribute__((visibility("default")))

EXPORTED const char *tuccl_executor_choose(const char *rules) {
    chosen[0] = '\0';
    if (rules != NULL && strstr(rules, "ll") == NULL)
        return "1 names no protocol (ll, ll128, simple)";
    if (rules != NULL)
        snprintf(chosen, sizeof chosen, "%s", rules);
    return NULL;
}

EXPORTED uint64_t tuccl_executor_calls(void) {
    return calls;
}

static void *find(const char *name) {
    void *nccl = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
    return dlsym(nccl, name);
}

/* The first rule of the file counts where nothing was chosen. */
static bool takes(const char *operation) {
    char rule[RULE_CHARACTERS] = "";
    const char *path = getenv("TUCCL_EXECUTOR_RULES");
    FILE *file = chosen[0] == '\0' && path != NULL ? fopen(path, "r") : NULL;
    snprintf(rule, sizeof rule, "%s", chosen);
    if (file != NULL) {
        if (fgets(rule, sizeof rule, file) == NULL)
            rule[0] = '\0';
        fclose(file);
    }
    size_t length = strlen(operation);
    bool taken = strncmp(rule, operation, length) == 0 && rule[length] == ' ' &&
                 strstr(rule, " simple ") == NULL;
    calls += taken;
    return taken;
}

EXPORTED int ncclAllReduce(const void *send, void *receive, size_t count, int type, int reduction,
                           void *communicator, void *stream) {
    int (*real)(const void *, void *, size_t, int, int, void *, void *);
    *(void **)&real = find("ncclAllReduce");
    (void)takes("all_reduce");
    return real(send, receive, count, type, reduction, communicator, stream);
}

EXPORTED int ncclAllGather(const void *send, void *receive, size_t count, int type,
                           void *communicator, void *stream) {
    int (*real)(const void *, void *, size_t, int, void *, void *);
    *(void **)&real = find("ncclAllGather");
    bool spoils = takes("all_gather") && getenv("STAND_IN_EXECUTOR_SPOILS") != NULL;
    return real(send, receive, spoils ? count / 2 : count, type, communicator, stream);
}

EXPORTED int ncclAlltoAll(const void *send, void *receive, size_t count, int type,
                          void *communicator, void *stream) {
    int (*real)(const void *, void *, size_t, int, void *, void *);
    *(void **)&real = find("ncclAlltoAll");
    (void)takes("alltoall");
    return real(send, receive, count, type, communicator, stream);
}
