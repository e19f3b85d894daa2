"""Comparison of two topologies of a machine: matching devices, and the changes between them."""
