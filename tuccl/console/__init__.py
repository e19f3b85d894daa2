"""The output of commands: notes, progress, tables for people, JSON for machines."""
