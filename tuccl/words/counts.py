"""Counts as people write them: `1 key`, `63 keys`."""

from __future__ import annotations


def count_of(number: int, noun: str, plural: str = "") -> str:
    """A number of things; the plural is regular if none is given."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"
