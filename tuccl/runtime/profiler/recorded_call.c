#include "recorded_call.h"

#include <stddef.h>
#include <string.h>

struct named {
    char name[16];
    uint8_t code;
};

/* The names of ncclFuncToString, the frequent ones first. */
static const struct named functions[] = {
    {"AllReduce", RECORDED_ALL_REDUCE},
    {"AllGather", RECORDED_ALL_GATHER},
    {"ReduceScatter", RECORDED_REDUCE_SCATTER},
    {"Send", RECORDED_SEND},
    {"Recv", RECORDED_RECV},
    {"Broadcast", RECORDED_BROADCAST},
    {"AlltoAll", RECORDED_ALLTOALL},
    {"Reduce", RECORDED_REDUCE},
    {"Gather", RECORDED_GATHER},
    {"Scatter", RECORDED_SCATTER},
};

/* The names of ncclDatatypeToString, the frequent ones first. It has none for uint8. */
static const struct named datatypes[] = {
    {"ncclBfloat16", 9},    {"ncclFloat32", 7}, {"ncclFloat16", 6},     {"ncclInt8", 0},
    {"ncclInt64", 4},       {"ncclInt32", 2},   {"ncclUint8", 1},       {"Unknown", 1},
    {"ncclFloat8e4m3", 10}, {"ncclUint32", 3},  {"ncclFloat8e5m2", 11}, {"ncclUint64", 5},
    {"ncclFloat64", 8},
};

static const char *const operation_names[RECORDED_OPERATIONS] = {
    "broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce",
    "alltoall",  "gather", "scatter",    "send",           "recv",
};

static const struct {
    const char *name;
    uint8_t bytes;
} datatype_forms[RECORDED_DATATYPES + 1] = {
    {"int8", 1},       {"uint8", 1},      {"int32", 4},   {"uint32", 4},  {"int64", 8},
    {"uint64", 8},     {"float16", 2},    {"float32", 4}, {"float64", 8}, {"bfloat16", 2},
    {"float8e4m3", 1}, {"float8e5m2", 1}, {NULL, 1},
};

static const char *const reduction_names[RECORDED_NO_REDUCTION + 1] = {
    "sum", "prod", "max", "min", "avg", "custom", NULL,
};

static bool find(const struct named *list, size_t length, const char *name, uint8_t *code) {
    if (name == NULL)
        return false;
    for (size_t i = 0; i < length; i++)
        if (strncmp(list[i].name, name, sizeof list[i].name) == 0) {
            *code = list[i].code;
            return true;
        }
    return false;
}

bool tuccl_operation_named(const char *nccl_name, uint8_t *operation) {
    return find(functions, sizeof functions / sizeof *functions, nccl_name, operation);
}

bool tuccl_operation_numbered(unsigned number, uint8_t *operation) {
    /* ncclFunc_t of NCCL 2.23; 5 was its sum of a send and a receive. */
    static const uint8_t numbered[] = {
        RECORDED_BROADCAST,  RECORDED_REDUCE,     RECORDED_ALL_GATHER, RECORDED_REDUCE_SCATTER,
        RECORDED_ALL_REDUCE, RECORDED_OPERATIONS, RECORDED_SEND,       RECORDED_RECV,
    };
    if (number >= sizeof numbered || numbered[number] == RECORDED_OPERATIONS)
        return false;
    *operation = numbered[number];
    return true;
}

bool tuccl_datatype_named(const char *nccl_name, uint8_t *datatype) {
    return find(datatypes, sizeof datatypes / sizeof *datatypes, nccl_name, datatype);
}

bool tuccl_datatype_numbered(unsigned number, uint8_t *datatype) {
    *datatype = (uint8_t)number;
    return number < RECORDED_DATATYPES;
}

const char *tuccl_operation_name(unsigned operation) {
    return operation_names[operation < RECORDED_OPERATIONS ? operation : RECORDED_SEND];
}

const char *tuccl_datatype_name(unsigned datatype) {
    return datatype_forms[datatype < RECORDED_DATATYPES ? datatype : RECORDED_BYTES].name;
}

const char *tuccl_reduction_name(unsigned reduction) {
    return reduction_names[reduction < RECORDED_NO_REDUCTION ? reduction : RECORDED_NO_REDUCTION];
}

uint64_t tuccl_element_bytes(unsigned datatype) {
    return datatype_forms[datatype < RECORDED_DATATYPES ? datatype : RECORDED_BYTES].bytes;
}
