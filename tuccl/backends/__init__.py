"""Measurement backends: all answer the same small protocol (`tuccl.backends.protocol`)."""
