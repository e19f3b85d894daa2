"""Planning: timetables of trees, their rehearsal, and the best proved schedule for a size."""
