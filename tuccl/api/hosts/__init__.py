"""The hosts of a command: their probe, and the one NCCL that they use."""
