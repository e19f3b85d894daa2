"""The PCI tree of a host, read from sysfs or a snapshot of it."""
