"""Lower bounds on time that no schedule undercuts, from flows and cuts of a sketch."""
