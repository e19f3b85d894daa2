"""Engines that run collectives in a worker: NCCL, TuCCL's executor, a stand-in over TCP."""
