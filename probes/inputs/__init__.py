"""Untrusted files and texts: read within limits, their faults reported in one line."""
