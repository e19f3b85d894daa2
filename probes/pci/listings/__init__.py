"""The PCI tree of a host as a tool listed it: what lspci printed, what hwloc exported."""
