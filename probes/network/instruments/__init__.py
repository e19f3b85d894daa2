"""The programs that measure between two ports: their start, end and output."""
