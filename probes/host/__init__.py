"""One host: looked at, measured, told to others, and what cannot be probed on it."""
