"""A tuned table against stock NCCL on this machine, in new processes as a job has them."""
