"""Data in one line of a message: texts, lists of names, and the fault of a value."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
"""Sequences of ECMA-48 and xterm: colours, positions, titles, character sets."""


def without_escapes(text: str) -> str:
    """Remove the sequences by which a text colours or steers a terminal."""
    return _ESCAPES.sub("", text)


def printable(text: str, max_length: int = 256) -> str:
    """Replace unprintable characters by question marks and cut the text to `max_length`."""
    return "".join(char if char.isprintable() else "?" for char in text[:max_length])


def listed(names: Iterable[str], most: int = 6) -> str:
    """Join names on one line, with the number of those beyond `most`."""
    every = list(names)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def shortened(names: Iterable[str]) -> str:
    """Join up to four names, quoted as they are untrusted, with the number of further names."""
    return listed([f"{name!a:.40}" for name in names], 4)


def first_fault(error: ValidationError, whole: str = "the file") -> str:
    """Describe the first fault as `devices.3.kind: ...`, with the number of further faults.

    `whole` names the data, for a fault that is in none of its fields.
    """
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    path = ".".join(map(str, faults[0]["loc"])) or whole
    message = faults[0]["msg"].removeprefix("Value error, ")
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return " ".join(f"{path}: {message}{more}".split())
