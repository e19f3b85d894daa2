"""Output of the commands on shipped directories."""
