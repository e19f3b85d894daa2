"""The times of each collective in which its GPU computes beside it, and in which it does not.

The latter bounds what a faster call saves where a trace does not tell what the host launched when,
so that nothing can be replayed; the former is what a call is timed beside.

Units: microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

Span = tuple[float, float]
"""Beginning and end of what ran on a GPU."""


class _Change(IntEnum):
    """A change at a time; at one time spans end before others begin."""

    WORK_ENDS = 0
    CALL_ENDS = 1
    WORK_BEGINS = 2
    CALL_BEGINS = 3


def uncovered_times_us(calls: Sequence[Span], work: Sequence[Span]) -> list[float]:
    """Return the time of each call in which no work runs beside it.

    Calls that wait at the same time divide it, so that the sum is the time in which the GPU runs
    calls alone.

    Args:
        calls: The kernels of collectives.
        work: All other kernels, and copies.
    """
    uncovered_us = [0.0] * len(calls)
    for lasted_us, running, works in _stretches(calls, work):
        if not works:
            for call in running:
                uncovered_us[call] += lasted_us / len(running)
    return uncovered_us


def computed_times_us(
    calls: Sequence[Span], taken: Sequence[float], work: Sequence[Span]
) -> list[tuple[float, float]]:
    """Return how long the GPU would take alone for what it computes beside each call, and its part.

    Calls keep some of the multiprocessors meanwhile, and the computation has the others. What
    several calls run beside is beside each of them; their parts of it add up to the whole.

    Args:
        calls: The kernels of collectives.
        taken: The share of the multiprocessors that each keeps; 0 where it is unknown.
        work: All other kernels.
    """
    beside_us, part_us = [0.0] * len(calls), [0.0] * len(calls)
    for lasted_us, running, works in _stretches(calls, work):
        if works:
            left = max(0.0, 1.0 - sum(taken[call] for call in running))
            for call in running:
                beside_us[call] += left * lasted_us
                part_us[call] += left * lasted_us / len(running)
    return list(zip(beside_us, part_us, strict=True))


def _stretches(
    calls: Sequence[Span], work: Sequence[Span]
) -> Iterator[tuple[float, set[int], bool]]:
    """Yield for how long which calls run, and whether work runs beside them."""
    running: set[int] = set()
    working = 0
    before_us = 0.0
    for at_us, change, number in sorted(_changes(calls, work)):
        if running:
            yield at_us - before_us, running, working > 0
        before_us = at_us
        match change:
            case _Change.CALL_BEGINS:
                running.add(number)
            case _Change.CALL_ENDS:
                running.discard(number)
            case _Change.WORK_BEGINS:
                working += 1
            case _Change.WORK_ENDS:
                working -= 1


def _changes(calls: Sequence[Span], work: Sequence[Span]) -> Iterator[tuple[float, _Change, int]]:
    for spans, begins, ends in (
        (calls, _Change.CALL_BEGINS, _Change.CALL_ENDS),
        (work, _Change.WORK_BEGINS, _Change.WORK_ENDS),
    ):
        for number, (begun_us, ended_us) in enumerate(spans):
            if ended_us > begun_us:
                yield begun_us, begins, number
                yield ended_us, ends, number
