"""Measuring a whole network: which pairs in which rounds, and what the figures say of it."""
