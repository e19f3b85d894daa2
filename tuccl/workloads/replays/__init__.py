"""Replays of a recorded step: how much shorter it is if its collectives take less time."""
