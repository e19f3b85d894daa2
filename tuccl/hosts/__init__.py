"""The hosts that a command works on: probed, and settled on one NCCL."""
