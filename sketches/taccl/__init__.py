"""Readers of TACCL's own topology and sketch files."""
