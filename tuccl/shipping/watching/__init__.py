"""Short checks whether a host is still the one that a shipped table was tuned for."""
