"""Models of NCCL and of the executor: what would run, how long it takes, in which order to try."""
