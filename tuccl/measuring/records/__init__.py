"""Records of measurements: what was timed on a machine, kept so that a search can be replayed."""
