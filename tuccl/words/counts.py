"""Counts as people write them: `1 key`, `63 keys`."""

from __future__ import annotations


def count_of(number: int, noun: str) -> str:
    """A number of things with a regular plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
