"""A finished run: its table and report read back, and what they say of a key and of a job."""
