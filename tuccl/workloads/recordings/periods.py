"""Steps of a job by the period of its calls."""

from __future__ import annotations

from collections.abc import Sequence

_LEAST_REPEATS = 4
"""Whole periods without which calls are not taken for periodic."""
_LEAST_SHARE = 0.75
"""Least share of all calls that are in the periodic part."""
_END_SHARE = 0.05
_END_CALLS = 8
"""Share and number of calls at the end that may belong to the job's end."""
_WINDOW = 200_000
"""Calls in which a period is looked for."""


def steps_by_period(sequence: Sequence[int]) -> float | None:
    """Return the number of steps that a rank's calls are of; None where that is not safe to say.

    But for some at the beginning and the end, the calls are one period over and over: no call is
    missing or of another kind. The period has two kinds of calls at least, since the layers of a
    model may make a row of equal calls in one step.

    Args:
        sequence: The rank's calls in their order, equal numbers for equal calls.
    """
    count = len(sequence)
    for end in (count, count - max(_END_CALLS, int(_END_SHARE * count))):
        period = _period_of_end(sequence[max(0, end - _WINDOW) : max(0, end)])
        if period is None:
            continue
        calls = _periodic_calls(sequence, end, period)
        if calls >= max(_LEAST_SHARE * count, _LEAST_REPEATS * period):
            several = len(set(sequence[end - period : end])) > 1
            return calls / period if several else None
    return None


def _period_of_end(sequence: Sequence[int]) -> int | None:
    """Return the period of the longest end that has one."""
    backwards = list(reversed(sequence))
    borders = _borders(backwards)
    for length in range(len(backwards), int(len(backwards) * _LEAST_SHARE), -1):
        period = length - borders[length - 1]
        if length >= _LEAST_REPEATS * period:
            return period
    return None


def _periodic_calls(sequence: Sequence[int], end: int, period: int) -> int:
    """Return the length of the part around a place that repeats with a period."""
    first = end - period
    while first > 0 and sequence[first - 1] == sequence[first - 1 + period]:
        first -= 1
    last = end
    while last < len(sequence) and sequence[last] == sequence[last - period]:
        last += 1
    return last - first


def _borders(sequence: Sequence[int]) -> list[int]:
    """Return for each beginning the length of its longest end that is also its beginning."""
    borders = [0] * len(sequence)
    length = 0
    for place in range(1, len(sequence)):
        while length and sequence[place] != sequence[length]:
            length = borders[length - 1]
        if sequence[place] == sequence[length]:
            length += 1
        borders[place] = length
    return borders
