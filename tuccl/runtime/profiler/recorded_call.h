/* A call as the recorder counts it, and its words in NCCL's and in TuCCL's names. */
#ifndef TUCCL_RECORDED_CALL_H
#define TUCCL_RECORDED_CALL_H

#include <stdbool.h>
#include <stdint.h>

enum tuccl_recorded_operation {
    RECORDED_BROADCAST,
    RECORDED_REDUCE,
    RECORDED_ALL_GATHER,
    RECORDED_REDUCE_SCATTER,
    RECORDED_ALL_REDUCE,
    RECORDED_ALLTOALL,
    RECORDED_GATHER,
    RECORDED_SCATTER,
    RECORDED_SEND,
    RECORDED_RECV,
    RECORDED_OPERATIONS,
};

/* Elements by ncclDataType_t; RECORDED_BYTES are bytes whose type is unknown. */
enum { RECORDED_DATATYPES = 12, RECORDED_BYTES = RECORDED_DATATYPES };
/* ncclRedOp_t below 5; then those that the program made; then unknown. */
enum { RECORDED_CUSTOM_REDUCTION = 5, RECORDED_NO_REDUCTION };
enum tuccl_recorded_answer { RECORDED_UNKNOWN, RECORDED_NO, RECORDED_YES };

struct tuccl_recorded_call {
    uint8_t operation;
    uint8_t datatype;
    uint8_t reduction;
    uint8_t in_place;
    uint8_t graph;
    uint64_t count; /* Elements, as NCCL's function takes them. */
};

/* Each returns false for a name or number that it does not know. */
bool tuccl_operation_named(const char *nccl_name, uint8_t *operation);
bool tuccl_operation_numbered(unsigned number, uint8_t *operation);
bool tuccl_datatype_named(const char *nccl_name, uint8_t *datatype);
bool tuccl_datatype_numbered(unsigned number, uint8_t *datatype);

const char *tuccl_operation_name(unsigned operation);
/* NULL: unknown. */
const char *tuccl_datatype_name(unsigned datatype);
const char *tuccl_reduction_name(unsigned reduction);
uint64_t tuccl_element_bytes(unsigned datatype);

#endif
