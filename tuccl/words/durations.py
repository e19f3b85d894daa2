"""Durations as people write them: `30s`, `500ms`, `20m`, `2h`, `24600us`."""

from __future__ import annotations

import math
import re

from tuccl.errors import UsageError

_SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(us|ms|s|m|h|)", re.ASCII)
_UNIT_S = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_MOST_SECONDS = 7 * 24 * 3600.0


def parse_seconds(text: str, what: str = "time limit") -> float:
    """Seconds of `30s`, `500ms`, `2m` or `30`.

    Args:
        text: The duration.
        what: It is of, for the message.

    Raises:
        UsageError: when the text is no duration, is zero, or is beyond a week.
    """
    match = _SECONDS.fullmatch(text.strip())
    seconds = float(match[1]) * _UNIT_S[match[2]] if match else math.nan
    if not 0 < seconds <= _MOST_SECONDS:
        raise UsageError(f"{what} {text!a:.60}: use more than 0 as 30s, 500ms or 2m, to a week")
    return seconds


def format_seconds(seconds: float) -> str:
    """For people: `0.25 s`, `34 s`, `12 min`, `3.5 h`."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 600:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def format_about(seconds: float) -> str:
    """For people who wait: `7 s`, `85 s`, `4 min`, `1.5 h`; whole seconds, one at least."""
    if seconds < 89.5:
        return f"{max(1.0, seconds):.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def format_elapsed(seconds: float) -> str:
    """Time that has passed so far, for people: `7 s`, `4 min 5 s`, `1 h 30 min`."""
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, left = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {left} s"
    return f"{minutes // 60} h {minutes % 60} min"
