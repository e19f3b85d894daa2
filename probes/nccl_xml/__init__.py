"""Topology files of NCCL and RCCL: read as a topology, and written from a topology."""
