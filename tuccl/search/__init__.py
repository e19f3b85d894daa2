"""The search: what is tried, strategies that choose it, and the statistics of samples."""
