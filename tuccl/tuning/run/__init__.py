"""One run of the tuning over its keys, from stock NCCL's times to the decisions."""
