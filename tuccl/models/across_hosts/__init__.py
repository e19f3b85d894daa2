"""The times of schedules across hosts: phases, and stages with rounds."""
