"""Workloads: the collectives that a job calls, read from recordings of it."""
