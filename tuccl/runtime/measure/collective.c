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

bool make_collective(struct collective *collective, int operation, int type, uint64_t size_bytes,
                     bool in_place, int ranks, int rank, struct failure *failure) {
    if (operation < 0 || operation >= TUCCL_OPERATIONS || type < 0 || type >= DATA_TYPES)
        return fail(failure, "operation %d of data type %d is none", operation, type);
    if (in_place && !tuccl_has_place((uint32_t)operation))
        return fail(failure, "NCCL has no %s in place", tuccl_call_name((uint32_t)operation));
    memset(collective, 0, sizeof *collective);
    collective->operation = (enum tuccl_operation)operation;
    collective->type = (enum data_type)type;
    collective->in_place = in_place;
    collective->ranks = ranks;
    collective->rank = rank;
    collective->element_bytes = data_type_bytes(collective->type);
    size_t parts = tuccl_is_divided(collective->operation) ? (size_t)ranks : 1;
    size_t part_bytes = size_bytes / parts;
    if (size_bytes == 0 || size_bytes % (parts * collective->element_bytes) != 0)
        return fail(failure, "%llu bytes are no whole number of %zu-byte elements for %zu parts",
                    (unsigned long long)size_bytes, collective->element_bytes, parts);
    collective->count = part_bytes / collective->element_bytes;
    bool sends_part = tuccl_input_is_part(collective->operation);
    bool receives_part = tuccl_output_is_part(collective->operation);
    collective->send_bytes = sends_part ? part_bytes : size_bytes;
    collective->receive_bytes = receives_part ? part_bytes : size_bytes;
    if (in_place && sends_part)
        collective->send_offset = (size_t)rank * part_bytes;
    if (in_place && receives_part)
        collective->receive_offset = (size_t)rank * part_bytes;
    return true;
}

/* Largest number up to which all integers are exact; a sum of all ranks stays within it. */
static int largest_sum(enum data_type type) {
    switch (type) {
    case TYPE_INT8:
        return 127;
    case TYPE_UINT8:
        return 255;
    case TYPE_BFLOAT16:
        return 256;
    default: /* float16 */
        return 2048;
    }
}

/* splitmix64 */
uint64_t pattern_draw(uint64_t rank, uint64_t element) {
    uint64_t z = (rank + 1) * 0x9E3779B97F4A7C15u + element * 0xD1342543DE82EF95u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static int value(int limit, int ranks, int rank, size_t element) {
    uint64_t number = pattern_draw((uint64_t)rank, element);
    if (limit / ranks >= 1)
        return (int)(number % ((uint64_t)(limit / ranks) + 1));
    /* With too many ranks for a number each: ones, rare enough to add up to limit / 2. */
    return number % (uint64_t)ranks < (uint64_t)limit / 2;
}

/* Returns the upper bits of the IEEE number of an exactly represented integer. */
static uint32_t float_bits(int number) {
    float as_float = (float)number;
    uint32_t bits;
    memcpy(&bits, &as_float, sizeof bits);
    return bits;
}

static uint16_t float16_bits(int number) {
    if (number == 0)
        return 0;
    uint32_t bits = float_bits(number);
    uint32_t exponent = (bits >> 23) - 127 + 15;
    return (uint16_t)((exponent << 10) | ((bits >> 13) & 0x3FF));
}

static void encode(enum data_type type, int number, unsigned char *element) {
    int64_t wide = number;
    double as_double = number;
    uint32_t single = float_bits(number);
    uint16_t half = type == TYPE_FLOAT16 ? float16_bits(number) : (uint16_t)(single >> 16);
    switch (type) {
    case TYPE_FLOAT16:
    case TYPE_BFLOAT16:
        memcpy(element, &half, sizeof half);
        break;
    case TYPE_FLOAT32:
        memcpy(element, &single, sizeof single);
        break;
    case TYPE_FLOAT64:
        memcpy(element, &as_double, sizeof as_double);
        break;
    default: /* Whole numbers: the lower bytes, on a little-endian machine. */
        memcpy(element, &wide, data_type_bytes(type));
        break;
    }
}

void pattern_of_rank(enum data_type type, int ranks, int rank, size_t elements, void *table) {
    size_t bytes = data_type_bytes(type);
    int limit = largest_sum(type);
    for (size_t i = 0; i < elements; i++)
        encode(type, value(limit, ranks, rank, i), (unsigned char *)table + i * bytes);
}

void pattern_of_sum(enum data_type type, int ranks, size_t elements, void *table) {
    size_t bytes = data_type_bytes(type);
    int limit = largest_sum(type);
    for (size_t i = 0; i < elements; i++) {
        int sum = 0;
        for (int rank = 0; rank < ranks; rank++)
            sum += value(limit, ranks, rank, i);
        encode(type, sum, (unsigned char *)table + i * bytes);
    }
}
