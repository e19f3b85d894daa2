/* NCCL's profiler plugin ABI, versions 1 to 6, as far as this plugin needs it.
 *
 * No NCCL package ships these declarations. They state binary facts: order and types of members as
 * NCCL 2.23 to 2.30 fill them (src/plugin/profiler and include/plugin/profiler there). Descriptors
 * end with the last member that is read here; NCCL's own are longer.
 *
 *   v1 2.23+   v2 2.24+   v3 2.26+   v4 2.27+   v5 2.28+   v6 2.29+   (NCCL takes the newest it
 * knows) */
#ifndef TUCCL_PROFILER_ABI_H
#define TUCCL_PROFILER_ABI_H

#include <stddef.h>
#include <stdint.h>

enum tuccl_profiler_event {
    NCCL_PROFILE_GROUP = 1 << 0,
    NCCL_PROFILE_COLLECTIVE = 1 << 1,
    NCCL_PROFILE_P2P = 1 << 2,
    NCCL_PROFILE_COLLECTIVE_CALL = 1 << 9,
    NCCL_PROFILE_P2P_CALL = 1 << 10,
};

/* Events of work that NCCL is about to launch. NCCL has turned the elements of all_gather and
 * broadcast into bytes by then. `function` and `datatype` are numbers of ncclFunc_t and
 * ncclDataType_t, `reduction` of ncclRedOp_t. */
struct tuccl_event_v1 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            const char *name;
            uint64_t communicator;
            uint64_t number;
            uint8_t function;
            const void *send;
            void *receive;
            size_t count;
            int root;
            uint8_t datatype;
            uint32_t reduction;
        } collective;
        struct {
            const char *name;
            uint64_t communicator;
            uint8_t function;
            void *buffer;
            uint8_t datatype;
            size_t count;
        } p2p;
    };
};

/* Names instead of numbers: "AllReduce", "ncclFloat16". */
struct tuccl_event_v2 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            const char *name;
            uint64_t communicator;
            uint64_t number;
            const char *function;
            const void *send;
            void *receive;
            size_t count;
            int root;
            const char *datatype;
        } collective;
        struct {
            const char *name;
            uint64_t communicator;
            const char *function;
            void *buffer;
            const char *datatype;
            size_t count;
        } p2p;
    };
};

struct tuccl_event_v4 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            uint64_t number;
            const char *function;
            const void *send;
            void *receive;
            size_t count;
            int root;
            const char *datatype;
        } collective;
        struct {
            const char *function;
            void *buffer;
            const char *datatype;
            size_t count;
        } p2p;
    };
};

/* Events of the job's calls, as it makes them. NCCL does not fill `rank`. `captured` is a bool. */
struct tuccl_event_v5 {
    uint64_t type;
    void *parent;
    int rank;
    union {
        struct {
            const char *function;
            size_t count;
            const char *datatype;
            int root;
            void *stream;
            uint8_t captured;
        } collective;
        struct {
            const char *function;
            size_t count;
            const char *datatype;
            void *stream;
            uint8_t captured;
        } p2p;
    };
};

/* Versions 1 to 3. */
struct tuccl_profiler_v1 {
    const char *name;
    int (*init)(void **context, int *activation);
    int (*start_event)(void *context, void **handle, void *event);
    int (*stop_event)(void *handle);
    int (*record_event_state)(void *handle, int state, void *arguments);
    int (*finalize)(void *context);
};

struct tuccl_profiler_v4 {
    const char *name;
    int (*init)(void **context, int *activation, const char *communicator_name,
                uint64_t communicator, int nodes, int ranks, int rank, void *logger);
    int (*start_event)(void *context, void **handle, void *event);
    int (*stop_event)(void *handle);
    int (*record_event_state)(void *handle, int state, void *arguments);
    int (*finalize)(void *context);
};

/* Versions 5 and 6, whose events are the same as far as they are read here. */
struct tuccl_profiler_v5 {
    const char *name;
    int (*init)(void **context, uint64_t communicator, int *activation,
                const char *communicator_name, int nodes, int ranks, int rank, void *logger);
    int (*start_event)(void *context, void **handle, void *event);
    int (*stop_event)(void *handle);
    int (*record_event_state)(void *handle, int state, void *arguments);
    int (*finalize)(void *context);
};

#endif
