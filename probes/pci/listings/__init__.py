"""The PCI tree of a host from the output of a tool: lspci or hwloc."""
