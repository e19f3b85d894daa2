#include "call_table.h"

#include <sys/mman.h>

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
    return call->operation == RECORDED_SEND || call->operation == RECORDED_RECV;
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
