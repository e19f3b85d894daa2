"""Schedules at work: their simulated time over a sketch, and their effect on real arrays."""
