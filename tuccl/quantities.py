"""Sizes, durations, counts and operations as people write them."""

from __future__ import annotations

import math
import re

from lookup_tables.collective import Collective, parse_collective
from tuccl.errors import UsageError

_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"^\s*(\d{1,20})\s*([KMGT]?)(?:I?B)?\s*$", re.IGNORECASE)
MAX_SIZE_BYTES = 1 << 46
_SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(us|ms|s|m|h|)", re.ASCII)
_UNIT_S = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_MOST_SECONDS = 7 * 24 * 3600.0


def parse_size(text: str) -> int:
    """Return the bytes of a size such as `64K`, `1M` or `8192`.

    Raises:
        UsageError: The text is no size, or lies outside 1 byte to 64 TiB.
    """
    match = _SIZE.match(text)
    if match is None:
        raise UsageError(f"size {text!r} is not understood: write bytes or 64K, 1M, 1G")
    size_bytes = int(match.group(1)) * _UNITS[match.group(2).upper()]
    if not 1 <= size_bytes <= MAX_SIZE_BYTES:
        raise UsageError(f"size {text!r} is out of range: use 1 byte to {MAX_SIZE_BYTES >> 40}T")
    return size_bytes


def format_size(size_bytes: int) -> str:
    """Return the shortest exact form: `64K`, `1M`, `1000`."""
    for unit in ("T", "G", "M", "K"):
        if size_bytes >= _UNITS[unit] and size_bytes % _UNITS[unit] == 0:
            return f"{size_bytes // _UNITS[unit]}{unit}"
    return str(size_bytes)


def size_ladder(min_bytes: int, max_bytes: int, factor: int) -> tuple[int, ...]:
    """Return the sizes from `min_bytes` to at most `max_bytes`, each `factor` times the one before.

    Raises:
        UsageError: The range is empty, or the factor below 2.
    """
    if factor < 2:
        raise UsageError(f"--step {factor} does not grow: use 2 or more")
    if min_bytes > max_bytes:
        raise UsageError(
            f"--min-size {format_size(min_bytes)} lies above --max-size {format_size(max_bytes)}"
        )
    sizes = [min_bytes]
    while sizes[-1] * factor <= max_bytes:
        sizes.append(sizes[-1] * factor)
    return tuple(sizes)


def parse_seconds(text: str, what: str = "time limit") -> float:
    """Return the seconds of `30s`, `500ms`, `2m` or `30`.

    Args:
        text: The duration.
        what: It is of, for the message.

    Raises:
        UsageError: The text is no duration, is zero, or exceeds a week.
    """
    match = _SECONDS.fullmatch(text.strip())
    seconds = float(match[1]) * _UNIT_S[match[2]] if match else math.nan
    if not 0 < seconds <= _MOST_SECONDS:
        raise UsageError(f"{what} {text!a:.60}: use more than 0 as 30s, 500ms or 2m, to a week")
    return seconds


def format_seconds(seconds: float) -> str:
    """Return a duration for people: `0.25 s`, `34 s`, `12 min`, `3.5 h`."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 600:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def format_about(seconds: float) -> str:
    """Return a wait for people: `7 s`, `85 s`, `4 min`, `1.5 h`; whole seconds, one at least."""
    if seconds < 89.5:
        return f"{max(1.0, seconds):.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def format_elapsed(seconds: float) -> str:
    """Return the time that has passed, for people: `7 s`, `4 min 5 s`, `1 h 30 min`."""
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, left = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {left} s"
    return f"{minutes // 60} h {minutes % 60} min"


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Return a number of things; the plural is regular if none is given."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"


def parse_operations(text: str) -> tuple[Collective, ...]:
    """Return the operations that a text names, separated by commas; each once, ascending.

    Raises:
        UsageError: A name is unknown, or there is none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("no operation given: use for example --operations all_reduce,all_gather")
    return tuple(sorted({parse_collective(name) for name in names}))
