#define _GNU_SOURCE /* dladdr, RTLD_DEFAULT */
#include "plugin_init.h"
#include "control.h"
#include "crc32.h"
#include "machine.h"
#include "request.h"
#include "tuner_abi.h"
#include "variables.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG(logger, level, ...)                                                                    \
    do {                                                                                           \
        if ((logger) != NULL)                                                                      \
            (logger)(level, NCCL_TUNING, "tuccl", __LINE__, __VA_ARGS__);                          \
    } while (0)
#define WARN(logger, ...) LOG(logger, NCCL_LOG_WARN, __VA_ARGS__)
#define INFO(logger, ...) LOG(logger, NCCL_LOG_INFO, __VA_ARGS__)

enum cause {
    CAUSE_UNREADABLE = TUCCL_BUNDLE_UNREADABLE,
    CAUSE_DAMAGED = TUCCL_BUNDLE_DAMAGED,
    CAUSE_OTHER_VERSION = TUCCL_BUNDLE_OTHER_VERSION,
    CAUSE_OTHER_MACHINE,
    CAUSE_NO_MEMORY,
    CAUSE_OTHER_NCCL,
    CAUSE_OTHER_VARIABLES,
    CAUSE_FREE_SUMS,
    CAUSES,
};

/* Jobs create many communicators; each cause is logged once per process. */
static atomic_bool warned[CAUSES];

static bool first_time(enum cause cause) {
    return !atomic_exchange_explicit(&warned[cause], true, memory_order_relaxed);
}

/* A variable that is set and not empty: `export NAME=` is how people unset one. */
static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

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

/* Returns whether NCCL's version differs from `wanted`, as in "2.28.9", and writes it to `found`
 * (at least 16 bytes). False as well if the version is unknown. */
static bool is_other_nccl(tuccl_nccl_logger logger, const char *wanted, char *found) {
    int version = version_of_caller(logger);
    if (version < 10000 || version > 999999)
        return false;
    snprintf(found, 16, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return strcmp(found, wanted) != 0;
}

/* From 2.31 on NCCL also runs PAT for averages (src/tuning/pat.cc), but PAT does not divide: 2.32.3
 * returned sums. Older releases do not offer PAT for averages (src/enqueue.cc). */
static bool pat_adds_averages_up(tuccl_nccl_logger logger) {
    return version_of_caller(logger) >= 23100;
}

/* A communicator that starts, and what the environment demands of its bundle. */
struct startup {
    int abi;
    size_t ranks, nodes, ranks_per_node;
    tuccl_nccl_logger logger;
    struct tuccl_request *request; /* Of the executor that checks it; may be NULL. */
    const char *path;
    bool crc_demanded;
    uint32_t crc;
};

static bool parse_crc(const char *text, uint32_t *crc) {
    if (strlen(text) != 8 || strspn(text, "0123456789abcdefABCDEF") != 8)
        return false;
    *crc = (uint32_t)strtoul(text, NULL, 16);
    return true;
}

static int read_settings(struct startup *startup) {
    const char *crc = setting("TUCCL_BUNDLE_CRC");
    startup->path = setting("TUCCL_BUNDLE");
    startup->crc_demanded = crc != NULL;
    if (crc != NULL && !parse_crc(crc, &startup->crc)) {
        WARN(startup->logger,
             "TuCCL: TUCCL_BUNDLE_CRC=%s is not 8 hexadecimal digits; take it from tuccl.env", crc);
        return NCCL_INVALID_USAGE;
    }
    if (crc != NULL && startup->path == NULL) {
        WARN(startup->logger,
             "TuCCL: TUCCL_BUNDLE_CRC=%08x but TUCCL_BUNDLE names no file; source the same "
             "tuccl.env on every rank",
             startup->crc);
        return NCCL_INVALID_USAGE;
    }
    return NCCL_SUCCESS;
}

/* Leaves NCCL unchanged unless a sum is demanded: then the other ranks have the table, and a rank
 * without it would choose differently and hang them. Other ranks may see other GPUs, too: they run
 * on another host, or in a container with another sysfs; a single rank has no peer to disagree
 * with. */
static int refuse(const struct startup *startup, enum cause cause, const char *why) {
    bool machine = cause == CAUSE_OTHER_MACHINE;
    if (startup->crc_demanded && !(machine && startup->ranks <= 1)) {
        WARN(startup->logger,
             "TuCCL: %s %s, and TUCCL_BUNDLE_CRC=%08x is demanded; this rank would decide "
             "differently from others: %s",
             startup->path, why, startup->crc,
             machine ? "tune this machine, or unset what tuccl.env exports on all ranks"
                     : "restore the file");
        return NCCL_INVALID_USAGE;
    }
    if (first_time(cause))
        WARN(
            startup->logger,
            "TuCCL: %s %s; NCCL stays as it is: %s, or run without the table and unset its process "
            "profile too (the NCCL_ variables of tuccl.env)",
            startup->path, why, machine ? "tune this machine" : "ship the bundle again");
    return NCCL_SUCCESS;
}

static void take(struct tuccl_request *request) {
    __atomic_fetch_add(&request->takers, 1, __ATOMIC_SEQ_CST);
}

/* Estimates of another NCCL may be those of other communicators. */
static bool tells_placements(tuccl_nccl_logger logger) {
    const char *wanted = setting("TUCCL_NCCL");
    char found[16];
    return wanted == NULL || !is_other_nccl(logger, wanted, found);
}

/* Returns a function of the executor, also where that stands behind a library that was opened
 * locally; NULL without one. The executor stays loaded. */
static void *executor_function(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    if (found != NULL)
        return found;
    void *executor = dlopen("libtuccl-executor.so", RTLD_LAZY | RTLD_NOLOAD);
    if (executor == NULL)
        return NULL;
    found = dlsym(executor, name);
    dlclose(executor);
    return found;
}

/* Returns whether this process calls NCCL through the executor. Programs that open NCCL themselves
 * go past what is preloaded. */
static bool has_executor(void) {
    tuccl_called_function *is_called =
        (tuccl_called_function *)(uintptr_t)executor_function(TUCCL_CALLED_FUNCTION);
    return is_called != NULL && is_called();
}

static tuccl_answered_function *_Atomic answered;

void tuccl_note_answer(uint32_t operation) {
    tuccl_answered_function *note = atomic_load_explicit(&answered, memory_order_relaxed);
    if (note != NULL)
        note(operation);
}

/* Returns whether NCCL's own settings serve every sum of a shape. */
static bool keeps_sums_alone(const struct tuccl_bundle *bundle,
                             const struct tuccl_shape_record *shape) {
    for (uint32_t i = 0; i < bundle->sum_count; i++) {
        if (&bundle->shapes[bundle->sums[i].shape] != shape)
            continue;
        struct tuccl_range_record range = shape->of_operation[bundle->sums[i].operation];
        for (uint32_t j = range.first; j < range.first + range.count; j++)
            if (bundle->entries[j].algorithm == TUCCL_NO_CODE)
                return false;
    }
    return true;
}

/* The plugin chooses among NCCL's settings, whose sums may move: those of the table are the
 * executor's. The job was promised otherwise, so it is told whatever NCCL_DEBUG says. */
static int require_kept_sums(const struct startup *startup, const struct tuccl_bundle *bundle,
                             const struct tuccl_shape_record *shape) {
    const char *said = setting("TUCCL_INVARIANT");
    bool strict = said != NULL && strcmp(said, "strict") == 0;
    if (bundle->sums == NULL || startup->ranks <= 2 || has_executor() ||
        (shape != NULL && keeps_sums_alone(bundle, shape)))
        return NCCL_SUCCESS;
    if (first_time(CAUSE_FREE_SUMS))
        fprintf(stderr,
                "TuCCL: %s keeps sums from moving by the executor, which this process has not "
                "loaded or goes past: its sums are NCCL's and may move; preload "
                "libtuccl-executor.so as "
                "tuccl.env says%s\n",
                startup->path, strict ? "; TUCCL_INVARIANT=strict refuses to start" : "");
    return strict ? NCCL_INVALID_USAGE : NCCL_SUCCESS;
}

static int select_shape(struct tuccl_selection **context, const struct startup *startup,
                        const struct tuccl_bundle *bundle) {
    size_t ranks = startup->ranks, nodes = startup->nodes, per_node = startup->ranks_per_node;
    const struct tuccl_shape_record *shape = tuccl_bundle_shape(bundle, ranks, nodes, per_node);
    int result = require_kept_sums(startup, bundle, shape);
    if (result != NCCL_SUCCESS)
        return result;
    const char *explain = setting("TUCCL_EXPLAIN");
    bool explained = explain != NULL && strcmp(explain, "0") != 0;
    if (shape == NULL && startup->request != NULL && startup->request->learns != 0) {
        *context = tuccl_selection_create_obeying(ranks, NULL, startup->request);
        if (*context == NULL)
            return refuse(startup, CAUSE_NO_MEMORY, "does not fit in memory");
        (*context)->explain = explained ? startup->logger : NULL;
        (*context)->pat_adds_averages_up = pat_adds_averages_up(startup->logger);
        take(startup->request);
        INFO(startup->logger,
             "TuCCL: %s (CRC %08x) has no entries for %zu ranks on %zu nodes, %zu per node; the "
             "job learns what is fast",
             startup->path, bundle->crc, ranks, nodes, per_node);
        return NCCL_SUCCESS;
    }
    if (shape == NULL) {
        INFO(startup->logger,
             "TuCCL: %s (CRC %08x) has no entries for %zu ranks on %zu nodes, %zu per node; NCCL "
             "stays as it is",
             startup->path, bundle->crc, ranks, nodes, per_node);
        return NCCL_SUCCESS;
    }
    *context = tuccl_selection_create(bundle, shape, tells_placements(startup->logger),
                                      startup->abi >= TUCCL_ABI_WITH_CHUNKS,
                                      pat_adds_averages_up(startup->logger), startup->request,
                                      explained ? startup->logger : NULL);
    if (*context == NULL)
        return refuse(startup, CAUSE_NO_MEMORY, "does not fit in memory");
    if (startup->request != NULL)
        take(startup->request);
    INFO(startup->logger,
         "TuCCL: %s (CRC %08x): %u entries for %zu ranks on %zu nodes, %zu per node", startup->path,
         bundle->crc, (*context)->entry_count, ranks, nodes, per_node);
    if ((*context)->without_chunks > 0)
        INFO(startup->logger,
             "TuCCL: left to NCCL: %u entries with a chunk size, which NCCL asks about from 2.30 "
             "on",
             (*context)->without_chunks);
    return NCCL_SUCCESS;
}

/* A host is read once in a process for each table: it takes a millisecond, and jobs create many
 * communicators. */
static bool machine_matches(const struct tuccl_bundle *bundle, bool across_hosts, char *why,
                            size_t why_bytes) {
    static _Atomic uint64_t matched[2];
    const char *root = setting("TUCCL_SYSFS");
    root = root != NULL ? root : "/sys";
    uint64_t now = (uint64_t)tuccl_crc32(0, root, strlen(root)) << 32 | bundle->crc;
    if (atomic_load_explicit(&matched[across_hosts], memory_order_relaxed) == now)
        return true;
    bool matches = tuccl_machine_matches(root, bundle, across_hosts, why, why_bytes);
    if (matches)
        atomic_store_explicit(&matched[across_hosts], now, memory_order_relaxed);
    return matches;
}

static int use_bundle(struct tuccl_selection **context, const struct startup *startup,
                      const struct tuccl_bundle *bundle) {
    char why[TUCCL_MACHINE_WHY_BYTES];
    if (startup->crc_demanded && startup->crc != bundle->crc) {
        WARN(startup->logger,
             "TuCCL: %s has CRC %08x but TUCCL_BUNDLE_CRC=%08x; ranks with different tables must "
             "not start together: copy the bundle and tuccl.env to every host again",
             startup->path, bundle->crc, startup->crc);
        return NCCL_INVALID_USAGE;
    }
    if (!machine_matches(bundle, startup->nodes > 1, why, sizeof why))
        return refuse(startup, CAUSE_OTHER_MACHINE, why);
    return select_shape(context, startup, bundle);
}

/* The table stays in force: it is right under any version, without PAT where that is not, but was
 * not measured with this one. */
static void compare_nccl(tuccl_nccl_logger logger) {
    const char *wanted = setting("TUCCL_NCCL");
    char found[16];
    if (wanted != NULL && is_other_nccl(logger, wanted, found) && first_time(CAUSE_OTHER_NCCL))
        WARN(logger,
             "TuCCL: the table was measured with NCCL %s, this is NCCL %s, whose times and choices "
             "differ: run tuccl retune with it and ship the table again",
             wanted, found);
}

/* The table stays in force here too. NCCL has put what its conf files give into the environment. */
static void compare_variables(tuccl_nccl_logger logger, const struct tuccl_bundle *bundle) {
    char named[600];
    if (logger == NULL || !first_time(CAUSE_OTHER_VARIABLES))
        return;
    if (tuccl_variables_differ(bundle, has_executor(), named, sizeof named))
        WARN(logger,
             "TuCCL: variables differ from those that the table was measured with, which stand in "
             "brackets: %s; see tuccl doctor",
             named);
}

/* A measurement without its control block would be one of another configuration: no start. */
static int follow_control(struct tuccl_selection **context, const char *path,
                          const struct startup *startup) {
    tuccl_nccl_logger logger = startup->logger;
    char why[200];
    struct tuccl_control *control =
        tuccl_control_open(path, startup->abi, startup->nodes, why, sizeof why);
    if (control != NULL)
        *context = tuccl_selection_create_obeying(startup->ranks, control, NULL);
    if (*context == NULL) {
        tuccl_control_close(control);
        WARN(logger,
             "TuCCL: TUCCL_CONTROL=%s %s; it is for tuccl's own measuring processes: unset it in "
             "jobs",
             path, control != NULL ? "does not fit in memory" : why);
        return NCCL_INVALID_USAGE;
    }
    (*context)->pat_adds_averages_up = pat_adds_averages_up(logger);
    INFO(logger, "TuCCL: measuring; %s chooses for each call, no bundle is used", path);
    return NCCL_SUCCESS;
}

/* Returns the executor's request for what it starts now, NULL without one. Another communicator may
 * start meanwhile, in another thread. */
static struct tuccl_request *offered_request(void) {
    void *symbol = dlsym(RTLD_DEFAULT, TUCCL_REQUEST_FUNCTION);
    tuccl_request_function *ask = (tuccl_request_function *)(uintptr_t)symbol;
    return ask != NULL ? ask() : NULL;
}

/* Its requests are the same on all ranks, which have agreed before. */
static int follow_rail(struct tuccl_selection **context, size_t ranks,
                       struct tuccl_request *request, tuccl_nccl_logger logger) {
    *context = tuccl_selection_create_obeying(ranks, NULL, request);
    if (*context == NULL)
        return NCCL_SUCCESS;
    (*context)->pat_adds_averages_up = pat_adds_averages_up(logger);
    take(request);
    INFO(logger, "TuCCL: the executor chooses for this communicator, a rail of its own");
    return NCCL_SUCCESS;
}

int tuccl_plugin_init(struct tuccl_selection **context, int abi, size_t ranks, size_t nodes,
                      size_t ranks_per_node, tuccl_nccl_logger logger) {
    *context = NULL;
    atomic_store(&answered,
                 (tuccl_answered_function *)(uintptr_t)executor_function(TUCCL_ANSWERED_FUNCTION));
    struct tuccl_request *request = offered_request();
    if (request != NULL && request->nodes != 0) {
        if (ranks == nodes && nodes == request->nodes)
            return follow_rail(context, ranks, request, logger);
        request = NULL;
    }
    struct startup startup = {abi, ranks, nodes, ranks_per_node, logger, request, NULL, false, 0};
    const char *control = setting("TUCCL_CONTROL");
    if (control != NULL)
        return follow_control(context, control, &startup);
    int result = read_settings(&startup);
    if (result != NCCL_SUCCESS)
        return result;
    if (startup.path == NULL) {
        INFO(logger, "TuCCL: TUCCL_BUNDLE names no file; NCCL stays as it is");
        return NCCL_SUCCESS;
    }
    struct tuccl_bundle bundle;
    char why[200];
    enum tuccl_bundle_fault fault = tuccl_bundle_load(startup.path, &bundle, why, sizeof why);
    if (fault != TUCCL_BUNDLE_GOOD)
        return refuse(&startup, (enum cause)fault, why);
    result = use_bundle(context, &startup, &bundle);
    if (*context != NULL) {
        compare_nccl(logger);
        compare_variables(logger, &bundle);
    }
    tuccl_bundle_free(&bundle);
    return result;
}
