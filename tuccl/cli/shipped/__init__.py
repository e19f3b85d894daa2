"""The command line of commands on shipped directories."""
