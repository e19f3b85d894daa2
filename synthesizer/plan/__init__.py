"""From trees to a proved schedule: timetables, their rehearsal, and the best plan for a size."""
