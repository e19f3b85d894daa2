"""The network between hosts: its ports, their addresses and groups, and results of pairs."""
