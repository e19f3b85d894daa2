"""Tuning: which process profile, which call for every key, and whether it is worth an entry."""
