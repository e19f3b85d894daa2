"""Transfers between the GPUs of one host: a CUDA benchmark, and the use of its figures."""
