"""Finished runs: tables and reports read back, explained for a key, and evaluated for a job."""
