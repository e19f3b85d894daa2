"""Compiling the executor and the P2P benchmark for the GPUs that are here."""
