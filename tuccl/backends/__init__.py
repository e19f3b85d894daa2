"""Measurement backends: all answer one small protocol (`tuccl.trials.backend`)."""
