"""The network between hosts: its ports, the tools that measure it, which pairs to measure."""
