"""Schedules for an operation and size: guided, made on every sketch, proved, chosen, written."""
