"""The PCI tree of a host as its system shows it: read from sysfs or a snapshot of it."""
