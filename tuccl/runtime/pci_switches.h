/* The PCIe switches above a PCI function, as sysfs shows them. */
#ifndef TUCCL_PCI_SWITCHES_H
#define TUCCL_PCI_SWITCHES_H

#include <stdbool.h>
#include <stdint.h>

enum { TUCCL_MOST_SWITCHES = 6 }; /* Nested; real machines have up to three. */

struct tuccl_pci_switches {
    uint64_t addresses[TUCCL_MOST_SWITCHES]; /* Of their upstream ports, nearest first. */
    uint32_t count;                          /* 0 as well if they are not known. */
};

/* Returns the switches above the function `name` of the folder /sys/bus/pci/devices, which is open
 * as `devices`. */
struct tuccl_pci_switches tuccl_pci_switches(int devices, const char *name);

bool tuccl_share_switch(const struct tuccl_pci_switches *one,
                        const struct tuccl_pci_switches *other);

#endif
