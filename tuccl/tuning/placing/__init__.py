"""Entries and where the ranks of a communicator sit: safe everywhere, or left out."""
