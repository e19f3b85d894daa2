"""Lowering: copies and reductions become threadblocks of MSCCL-IR steps."""
