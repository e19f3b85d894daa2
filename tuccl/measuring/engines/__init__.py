"""Engines that run collectives in a worker: NCCL, and TuCCL's executor."""
