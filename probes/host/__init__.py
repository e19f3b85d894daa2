"""One host: its probe, the report of it, and a check of what can be probed."""
