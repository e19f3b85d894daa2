#include "call_table.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

struct named {
    char name[16];
    uint8_t code;
};

/* The names of ncclFuncToString. */
static const struct named functions[] = {
#define X(NAME, nccl_name, name, flow) {#nccl_name, TUCCL_##NAME},
    TUCCL_CALLS(X)
#undef X
};

/* The names of ncclDatatypeToString, the frequent ones first. It has none for uint8. */
static const struct named datatypes[] = {
    {"ncclBfloat16", 9},    {"ncclFloat32", 7}, {"ncclFloat16", 6},     {"ncclInt8", 0},
    {"ncclInt64", 4},       {"ncclInt32", 2},   {"ncclUint8", 1},       {"Unknown", 1},
    {"ncclFloat8e4m3", 10}, {"ncclUint32", 3},  {"ncclFloat8e5m2", 11}, {"ncclUint64", 5},
    {"ncclFloat64", 8},
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

static bool find_code(const struct named *list, size_t length, const char *name, uint8_t *code) {
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
    return find_code(functions, sizeof functions / sizeof *functions, nccl_name, operation);
}

bool tuccl_operation_numbered(unsigned number, uint8_t *operation) {
    /* ncclFunc_t of NCCL 2.23, after its collectives. */
    enum { SEND_AND_RECV = TUCCL_ASKED_ABOUT, SEND, RECV };
    *operation = (uint8_t)(number == SEND ? TUCCL_SEND : number == RECV ? TUCCL_RECV : number);
    return number <= RECV && number != SEND_AND_RECV;
}

bool tuccl_datatype_named(const char *nccl_name, uint8_t *datatype) {
    return find_code(datatypes, sizeof datatypes / sizeof *datatypes, nccl_name, datatype);
}

bool tuccl_datatype_numbered(unsigned number, uint8_t *datatype) {
    *datatype = (uint8_t)number;
    return number < RECORDED_DATATYPES;
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

enum {
    COUNTED_SLOTS = 4096, /* A power of two. */
    SUMMED_SLOTS = 256,   /* A power of two. */
    PROBES = 32,
};
/* States of a slot, in the lowest bits of its key. */
enum { EMPTY = 0, CLAIMED = 1, READY = 2 };

struct slot {
    uint64_t key;
    uint64_t count;
    uint64_t calls;
    uint64_t elements;
};

/* Zeros from mmap: the table takes memory where slots are used. */
struct tuccl_call_table {
    uint32_t claimed;
    uint16_t order[COUNTED_SLOTS + SUMMED_SLOTS]; /* Slots in the order of their claims, plus 1. */
    struct slot slots[COUNTED_SLOTS + SUMMED_SLOTS];
};

struct tuccl_call_table *tuccl_call_table_create(void) {
    void *table = mmap(NULL, sizeof(struct tuccl_call_table), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return table == MAP_FAILED ? NULL : table;
}

void tuccl_call_table_free(struct tuccl_call_table *table) {
    if (table != NULL)
        munmap(table, sizeof *table);
}

static uint64_t key_of(const struct tuccl_recorded_call *call) {
    return READY | (uint64_t)call->operation << 8 | (uint64_t)call->datatype << 16 |
           (uint64_t)call->reduction << 24 | (uint64_t)call->in_place << 32 |
           (uint64_t)call->graph << 40;
}

static void claim(struct tuccl_call_table *table, struct slot *slot, uint64_t key, uint64_t count) {
    __atomic_store_n(&slot->count, count, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->key, key, __ATOMIC_RELEASE);
    uint32_t place = __atomic_fetch_add(&table->claimed, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&table->order[place], (uint16_t)(slot - table->slots + 1), __ATOMIC_RELEASE);
}

/* Returns the slot of a key and count among some slots, claimed if need be; NULL: no place. */
static struct slot *find(struct tuccl_call_table *table, size_t first, size_t length, uint64_t key,
                         uint64_t count) {
    struct slot *slots = table->slots + first;
    uint64_t hash = (count ^ key * 0xC2B2AE3D27D4EB4Fu) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
    for (uint64_t probe = 0; probe < PROBES; probe++) {
        struct slot *slot = &slots[(hash + probe) & (length - 1)];
        uint64_t found = __atomic_load_n(&slot->key, __ATOMIC_ACQUIRE);
        if (found == key && __atomic_load_n(&slot->count, __ATOMIC_RELAXED) == count)
            return slot;
        if (found == EMPTY && __atomic_compare_exchange_n(&slot->key, &found, CLAIMED, false,
                                                          __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            claim(table, slot, key, count);
            return slot;
        }
    }
    return NULL;
}

static bool is_summed(const struct tuccl_recorded_call *call) {
    return call->operation == TUCCL_SEND || call->operation == TUCCL_RECV;
}

bool tuccl_call_table_count(struct tuccl_call_table *table, const struct tuccl_recorded_call *call,
                            uint64_t *before) {
    uint64_t key = key_of(call);
    struct slot *slot = is_summed(call) ? NULL : find(table, 0, COUNTED_SLOTS, key, call->count);
    if (slot == NULL) {
        slot = find(table, COUNTED_SLOTS, SUMMED_SLOTS, key, 0);
        if (slot == NULL)
            return false;
        __atomic_fetch_add(&slot->elements, call->count, __ATOMIC_RELAXED);
    }
    *before = __atomic_fetch_add(&slot->calls, 1, __ATOMIC_RELAXED);
    return true;
}

size_t tuccl_call_table_claimed(const struct tuccl_call_table *table) {
    return __atomic_load_n(&table->claimed, __ATOMIC_RELAXED);
}

bool tuccl_call_table_read(const struct tuccl_call_table *table, size_t place,
                           struct tuccl_counted_call *counted) {
    uint16_t number = __atomic_load_n(&table->order[place], __ATOMIC_ACQUIRE);
    if (number == 0)
        return false;
    const struct slot *slot = &table->slots[number - 1];
    uint64_t key = __atomic_load_n(&slot->key, __ATOMIC_ACQUIRE);
    *counted = (struct tuccl_counted_call){
        .call = {.operation = (uint8_t)(key >> 8),
                 .datatype = (uint8_t)(key >> 16),
                 .reduction = (uint8_t)(key >> 24),
                 .in_place = (uint8_t)(key >> 32),
                 .graph = (uint8_t)(key >> 40),
                 .count = __atomic_load_n(&slot->count, __ATOMIC_RELAXED)},
        .has_count = number <= COUNTED_SLOTS,
        .calls = __atomic_load_n(&slot->calls, __ATOMIC_RELAXED),
        .elements = __atomic_load_n(&slot->elements, __ATOMIC_RELAXED),
    };
    return counted->calls > 0;
}
