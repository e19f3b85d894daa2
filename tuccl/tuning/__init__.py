"""Tuning: the process profile of a table, and the entry of each key that gains by one."""
