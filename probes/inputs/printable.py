"""Words of files, drivers and tools, fit for one line of a message: `printable`."""

from __future__ import annotations


def printable(text: str, most: int = 256) -> str:
    """The text with a question mark for every letter that cannot be printed, cut to a length."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:most])
