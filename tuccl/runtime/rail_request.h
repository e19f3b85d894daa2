/* How the executor has NCCL run a rail's calls: a request that the tuner plugin of the rail's
 * communicator obeys. Both are libraries of one process; the plugin looks the executor's function
 * up when a communicator starts. */
#ifndef TUCCL_RAIL_REQUEST_H
#define TUCCL_RAIL_REQUEST_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUCCL_RAIL_REQUEST_FUNCTION "tuccl_executor_rail_request"

enum { TUCCL_RAIL_NO_REQUEST = 0xFF };

/* Accessed with __atomic built-ins. */
struct tuccl_rail_request {
    /* Bits 0 to 7 algorithm (TUCCL_RAIL_NO_REQUEST: NCCL's own choice), 8 to 15 protocol, 16 to 31
     * channels (0: NCCL's count). */
    uint64_t word;
    uint32_t nodes;
    uint32_t takers; /* Communicators whose plugin obeys it. */
};

/* The executor's function: the request of the rail that it is splitting now, NULL without one. */
typedef struct tuccl_rail_request *tuccl_rail_request_function(void);

#ifdef __cplusplus
}
#endif

#endif
