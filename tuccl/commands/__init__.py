"""The work of every command, behind its options."""
