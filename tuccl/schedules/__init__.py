"""Schedules for an operation and size: make them on every sketch, prove, choose and write them."""
