"""Sizes, durations and operations as people write them, and how far a command is."""
