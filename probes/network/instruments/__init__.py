"""The programs that measure between two ports, and how they are started and ended."""
