"""Recordings of jobs: NCCL's log, PyTorch's traces, NCCL Inspector's JSON, a CSV of calls."""
