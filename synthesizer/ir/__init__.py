"""Representations of a schedule: programs, MSCCL-IR and its limits, schedule graphs."""
