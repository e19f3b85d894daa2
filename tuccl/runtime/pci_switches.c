#include "pci_switches.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_LEVELS = 64, LARGEST_PATH = 4096 };

/* Takes a hexadecimal number of `least` to `most` digits that ends with `end` from `*text`. */
static bool take_number(const char **text, size_t least, size_t most, char end, uint64_t *number) {
    size_t length = strspn(*text, "0123456789abcdef");
    if (length < least || length > most || (*text)[length] != end)
        return false;
    *number = strtoull(*text, NULL, 16);
    *text += length + (end != '\0');
    return true;
}

/* Reads an address as "0000:3b:00.0" into one number. */
static bool read_address(const char *text, uint64_t *address) {
    uint64_t domain, bus, slot, function;
    if (!take_number(&text, 4, 8, ':', &domain) || !take_number(&text, 2, 2, ':', &bus) ||
        !take_number(&text, 2, 2, '.', &slot) || !take_number(&text, 1, 1, '\0', &function))
        return false;
    *address = domain << 32 | bus << 16 | slot << 8 | function;
    return true;
}

/* Reads the functions from the last root bus of a path down to its end, as in
 * "../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0". Returns their number, 0 if the path is
 * none of a PCI tree. */
static uint32_t read_path(char *path, uint64_t addresses[MOST_LEVELS]) {
    uint32_t count = 0;
    bool below_root = false;
    char *rest = NULL;
    for (char *name = strtok_r(path, "/", &rest); name != NULL; name = strtok_r(NULL, "/", &rest)) {
        bool is_root = strncmp(name, "pci", 3) == 0;
        if (below_root && !is_root &&
            (count == MOST_LEVELS || !read_address(name, &addresses[count++])))
            return 0;
        count = is_root ? 0 : count;
        below_root |= is_root;
    }
    return count;
}

/* Every second bridge above a function is the upstream port of a switch: below it is a downstream
 * port. NCCL takes them so, too. */
struct tuccl_pci_switches tuccl_pci_switches(int devices, const char *name) {
    struct tuccl_pci_switches switches = {.count = 0};
    char path[LARGEST_PATH];
    uint64_t addresses[MOST_LEVELS];
    ssize_t length = readlinkat(devices, name, path, sizeof path - 1);
    if (length <= 0)
        return switches;
    path[length] = '\0';
    for (int at = (int)read_path(path, addresses) - 3; at >= 0; at -= 2)
        if (switches.count < TUCCL_MOST_SWITCHES)
            switches.addresses[switches.count++] = addresses[at];
    return switches;
}

bool tuccl_share_switch(const struct tuccl_pci_switches *one,
                        const struct tuccl_pci_switches *other) {
    for (uint32_t i = 0; i < one->count; i++)
        for (uint32_t k = 0; k < other->count; k++)
            if (one->addresses[i] == other->addresses[k])
                return true;
    return false;
}
