"""The figures of a report, read from a workspace or a shipped directory."""
