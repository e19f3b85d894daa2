"""The command line: commands with their options and help."""
