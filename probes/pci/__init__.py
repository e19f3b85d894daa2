"""What the PCI tree of a host says: read from sysfs, a snapshot of it, hwloc XML or lspci."""
