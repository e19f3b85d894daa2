#include "rounding.h"

#include <math.h>
#include <string.h>

enum { EXPONENTS = 8, DRAWN_ELEMENTS = 4093 };

bool type_rounds(enum data_type type) {
    return type == TYPE_FLOAT16 || type == TYPE_BFLOAT16 || type == TYPE_FLOAT32 ||
           type == TYPE_FLOAT64;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To the nearest, of two as near to the even one. Of finite numbers that float16 has room for. */
static uint16_t to_float16(float value) {
    uint32_t bits = bits_of(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    float magnitude = fabsf(value);
    if (magnitude < ldexpf(1.0f, -14)) /* Subnormal: a whole number of 2^-24. */
        return (uint16_t)(sign | (uint16_t)lrintf(ldexpf(magnitude, 24)));
    bits = bits_of(magnitude);
    bits += 0xFFF + (bits >> 13 & 1);
    return (uint16_t)(sign | (uint16_t)((bits >> 13) - ((127 - 15) << 10)));
}

static float from_float16(uint16_t half) {
    int exponent = half >> 10 & 31;
    float fraction = (float)(half & 1023);
    float magnitude =
        exponent == 0 ? ldexpf(fraction, -24) : ldexpf(1024.0f + fraction, exponent - 25);
    return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

static uint16_t to_bfloat16(float value) {
    uint32_t bits = bits_of(value);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static float from_bfloat16(uint16_t upper) {
    return float_of((uint32_t)upper << 16);
}

double number_of(enum data_type type, const void *element) {
    float single;
    double wide;
    uint16_t half;
    uint64_t whole = 0;
    switch (type) {
    case TYPE_FLOAT16:
    case TYPE_BFLOAT16:
        memcpy(&half, element, sizeof half);
        return type == TYPE_FLOAT16 ? from_float16(half) : from_bfloat16(half);
    case TYPE_FLOAT32:
        memcpy(&single, element, sizeof single);
        return single;
    case TYPE_FLOAT64:
        memcpy(&wide, element, sizeof wide);
        return wide;
    default: /* Whole numbers, which the data here have from 0 on. */
        memcpy(&whole, element, data_type_bytes(type));
        return (double)whole;
    }
}

/* The number as the type holds it, in the type in which it is added: double holds all of them. */
static double rounded(enum data_type type, double value) {
    switch (type) {
    case TYPE_FLOAT16:
        return from_float16(to_float16((float)value));
    case TYPE_BFLOAT16:
        return from_bfloat16(to_bfloat16((float)value));
    case TYPE_FLOAT32:
        return (float)value;
    default:
        return value;
    }
}

static double added(enum data_type type, double first, double second) {
    return type == TYPE_FLOAT64 ? first + second : (double)((float)first + (float)second);
}

static void encode(enum data_type type, double value, unsigned char *element) {
    float single = (float)value;
    uint16_t half = type == TYPE_FLOAT16 ? to_float16(single) : to_bfloat16(single);
    if (type == TYPE_FLOAT64)
        memcpy(element, &value, sizeof value);
    else if (type == TYPE_FLOAT32)
        memcpy(element, &single, sizeof single);
    else
        memcpy(element, &half, sizeof half);
}

static double part_of(enum data_type type, int rank, size_t element) {
    uint64_t drawn = pattern_draw((uint64_t)rank, element);
    double magnitude = 1.0 + ldexp((double)(drawn >> 12), -52);
    magnitude = ldexp(magnitude, (int)(drawn % EXPONENTS) - EXPONENTS / 2);
    return rounded(type, (drawn >> 3 & 1) != 0 ? -magnitude : magnitude);
}

/* Repeats the elements that were drawn, a prime number of them, up to the end of the table. */
static void repeat(size_t drawn, size_t elements, size_t bytes, unsigned char *table) {
    for (size_t done = drawn; done < elements; done += drawn) {
        size_t left = elements - done;
        memcpy(table + done * bytes, table, (left < drawn ? left : drawn) * bytes);
    }
}

static size_t drawn_of(size_t elements) {
    return elements < DRAWN_ELEMENTS ? elements : DRAWN_ELEMENTS;
}

void rounding_of_rank(enum data_type type, int rank, size_t elements, void *table) {
    size_t bytes = data_type_bytes(type), drawn = drawn_of(elements);
    for (size_t i = 0; i < drawn; i++)
        encode(type, part_of(type, rank, i), (unsigned char *)table + i * bytes);
    repeat(drawn, elements, bytes, table);
}

static double sum_of(enum data_type type, int ranks, int local_ranks, size_t element) {
    double sum = 0.0;
    for (int first = 0; first < ranks; first += local_ranks) {
        double of_node = part_of(type, first, element);
        for (int rank = first + 1; rank < first + local_ranks && rank < ranks; rank++)
            of_node = added(type, of_node, part_of(type, rank, element));
        of_node = rounded(type, of_node);
        sum = first == 0 ? of_node : added(type, sum, of_node);
    }
    return sum;
}

void rounding_of_sum(enum data_type type, int ranks, int local_ranks, size_t elements,
                     void *table) {
    size_t bytes = data_type_bytes(type), drawn = drawn_of(elements);
    for (size_t i = 0; i < drawn; i++)
        encode(type, sum_of(type, ranks, local_ranks, i), (unsigned char *)table + i * bytes);
    repeat(drawn, elements, bytes, table);
}
