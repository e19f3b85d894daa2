#include "collective.h"

#include <string.h>

size_t data_type_bytes(enum data_type type) {
    static const size_t bytes[DATA_TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return bytes[type];
}

size_t larger_buffer_bytes(const struct collective *collective) {
    return collective->send_bytes > collective->receive_bytes ? collective->send_bytes
                                                              : collective->receive_bytes;
}

static bool is_shared_out(enum operation operation) {
    return operation == OPERATION_ALL_GATHER || operation == OPERATION_REDUCE_SCATTER ||
           operation == OPERATION_ALLTOALL;
}

bool make_collective(struct collective *collective, int operation, int type, uint64_t size_bytes,
                     bool in_place, int ranks, int rank, struct failure *failure) {
    if (operation < 0 || operation >= OPERATIONS || type < 0 || type >= DATA_TYPES)
        return fail(failure, "operation %d of data type %d is none", operation, type);
    if (operation == OPERATION_ALLTOALL && in_place)
        return fail(failure, "NCCL has no alltoall in place");
    memset(collective, 0, sizeof *collective);
    collective->operation = (enum operation)operation;
    collective->type = (enum data_type)type;
    collective->in_place = in_place;
    collective->ranks = ranks;
    collective->rank = rank;
    collective->element_bytes = data_type_bytes(collective->type);
    size_t parts = is_shared_out(collective->operation) ? (size_t)ranks : 1;
    size_t part_bytes = size_bytes / parts;
    if (size_bytes == 0 || size_bytes % (parts * collective->element_bytes) != 0)
        return fail(failure, "%llu bytes are no whole number of %zu-byte elements for %zu parts",
                    (unsigned long long)size_bytes, collective->element_bytes, parts);
    collective->count = part_bytes / collective->element_bytes;
    collective->send_bytes = operation == OPERATION_ALL_GATHER ? part_bytes : size_bytes;
    collective->receive_bytes = operation == OPERATION_REDUCE_SCATTER ? part_bytes : size_bytes;
    if (in_place && operation == OPERATION_ALL_GATHER)
        collective->send_offset = (size_t)rank * part_bytes;
    if (in_place && operation == OPERATION_REDUCE_SCATTER)
        collective->receive_offset = (size_t)rank * part_bytes;
    return true;
}
