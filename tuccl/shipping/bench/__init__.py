"""Benchmarks of tuned tables against stock NCCL on this machine, in new processes like a job's."""
