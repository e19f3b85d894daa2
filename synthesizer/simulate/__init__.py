"""Simulation of schedules: their time over a sketch."""
