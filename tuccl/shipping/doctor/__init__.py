"""The state of a host for a shipped table: whether a job here would load it, and why not."""
