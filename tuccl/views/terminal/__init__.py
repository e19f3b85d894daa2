"""The output of commands: notes, progress, tables, JSON."""
