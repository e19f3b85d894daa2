"""The network between hosts: its ports, their addresses and groups, and what a pair showed."""
