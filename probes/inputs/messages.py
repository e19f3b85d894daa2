"""Untrusted data in one line of a message: `printable` for texts, `first_fault` for values."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


def printable(text: str, max_length: int = 256) -> str:
    """Replace unprintable characters by question marks and cut the text to `max_length`."""
    return "".join(char if char.isprintable() else "?" for char in text[:max_length])


def first_fault(error: ValidationError, whole: str = "the file") -> str:
    """Describe the first fault as `devices.3.kind: ...`, with the number of further faults.

    `whole` names the data, for a fault that is in none of its fields.
    """
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    path = ".".join(map(str, faults[0]["loc"])) or whole
    message = faults[0]["msg"].removeprefix("Value error, ")
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return " ".join(f"{path}: {message}{more}".split())
