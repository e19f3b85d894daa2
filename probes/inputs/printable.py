"""Text of files, drivers and tools, made fit for one line of a message: `printable`."""

from __future__ import annotations


def printable(text: str, max_length: int = 256) -> str:
    """Replace unprintable characters by question marks and cut the text to `max_length`."""
    return "".join(char if char.isprintable() else "?" for char in text[:max_length])
