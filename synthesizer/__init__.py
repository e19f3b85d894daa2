"""Schedules: expert and synthesized algorithms, their proof, simulated time and bound."""
