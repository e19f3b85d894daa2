"""From a program of copies and reductions to threadblocks of MSCCL-IR steps."""
