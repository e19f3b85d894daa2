"""Programs of the executor: compiled from schedules, and read back with every check there is."""
