"""Lower bounds on the time of any schedule, from flows and cuts of a sketch."""
