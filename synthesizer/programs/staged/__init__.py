"""Schedules across hosts in stages: any schedule cut into work inside nodes and network rounds."""
