// libcuda.so.1 as far as mappings.cc asks it: allocations that a test makes and frees.
#include <stddef.h>

enum { MOST = 64, BUFFER_ID = 7, INVALID_VALUE = 1 };

static struct {
    unsigned long long base, id;
    size_t bytes;
} allocations[MOST];

static int find(unsigned long long address) {
    for (int i = 0; i < MOST; i++)
        if (allocations[i].id != 0 && address - allocations[i].base < allocations[i].bytes)
            return i;
    return -1;
}

void stand_in_allocate(unsigned long long base, size_t bytes, unsigned long long id) {
    for (int i = 0; i < MOST; i++)
        if (allocations[i].id == 0) {
            allocations[i].base = base;
            allocations[i].bytes = bytes;
            allocations[i].id = id;
            return;
        }
}

void stand_in_free(unsigned long long base) {
    const int found = find(base);
    if (found >= 0)
        allocations[found].id = 0;
}

int cuMemGetAddressRange_v2(unsigned long long *base, size_t *bytes, unsigned long long address) {
    const int found = find(address);
    if (found < 0)
        return INVALID_VALUE;
    *base = allocations[found].base;
    *bytes = allocations[found].bytes;
    return 0;
}

int cuPointerGetAttribute(void *value, int attribute, unsigned long long address) {
    const int found = find(address);
    if (found < 0 || attribute != BUFFER_ID)
        return INVALID_VALUE;
    *(unsigned long long *)value = allocations[found].id;
    return 0;
}
