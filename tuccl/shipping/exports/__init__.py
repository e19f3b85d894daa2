"""A table in forms that others read: a tuner's CSV, thresholds of serving engines."""
