"""Simulation of schedules: time over a sketch, and effect on real arrays."""
