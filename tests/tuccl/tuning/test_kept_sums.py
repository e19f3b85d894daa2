"""The winner of a key whose sums must not move; figures worked by hand."""

from __future__ import annotations

import math

import pytest

from lookup_tables.collective import Collective
from lookup_tables.confirmation import Estimator
from lookup_tables.table import Shape
from tuccl.errors import MeasurementError
from tuccl.search.statistics.intervals import UNKNOWN, Interval
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.tuning.decision import Comparison, Decision, compare_alone
from tuccl.tuning.kept_sums import with_winner

TASK = Task(Collective.ALL_REDUCE, 4096, Shape(4, 1, 4))
FIRST, SECOND = Config("schedule:aa", "LL", 8), Config("schedule:bb", "LL", 8)


def compared(config: Config, time_us: float, interval: Interval = UNKNOWN) -> Comparison:
    return Comparison(
        config, STOCK, time_us, 10.0, 10.0 / time_us, interval, 8, 0.01,
        Estimator.MEDIAN_OF_PAIRS, 1,
    )  # fmt: skip


def never(task: Task, config: Config) -> Comparison:
    raise AssertionError(f"{config} of {task} has bounds")


KNOWN = Interval(0.7, 0.9)


def decision_of(*rejected: Comparison, schedule: Comparison | None = None) -> Decision:
    return Decision(None, schedule, 10.0, rejected)


def test_the_fastest_call_that_lost_becomes_the_winner() -> None:
    slow, fast = compared(FIRST, 14.0, KNOWN), compared(SECOND, 12.5, KNOWN)
    found = with_winner(TASK, decision_of(slow, fast), lambda *_: True, never)
    assert found.schedule == fast
    assert found.is_obliged
    assert found.rejected == (slow,)


def test_a_call_that_was_proved_faster_stays() -> None:
    won = compared(FIRST, 8.0, Interval(1.1, 1.4))
    decision = decision_of(compared(SECOND, 12.0, KNOWN), schedule=won)
    assert with_winner(TASK, decision, lambda *_: True, never) is decision


def test_a_winner_that_is_wrong_in_another_start_makes_room() -> None:
    won, other = compared(FIRST, 8.0, Interval(1.1, 1.4)), compared(SECOND, 12.0, KNOWN)
    decision = decision_of(other, schedule=won)
    found = with_winner(TASK, decision, lambda _, config: config == SECOND, never)
    assert found.schedule == other
    with pytest.raises(
        MeasurementError, match=r"all_reduce of 4 ranks in the order \(0\+1\+2\+3\)"
    ):
        with_winner(TASK, decision, lambda *_: False, never)


def test_a_call_without_bounds_is_compared_again() -> None:
    again = compared(FIRST, 12.0, KNOWN)
    found = with_winner(TASK, decision_of(compared(FIRST, 13.0)), lambda *_: True, lambda *_: again)
    assert found.schedule == again


def test_a_call_that_loses_every_turn_has_bounds() -> None:
    def measure(config: Config, repeats: int) -> tuple[float, ...]:
        return tuple((10.0 if config == STOCK else 12.5) for _ in range(repeats))

    found = compare_alone(FIRST, STOCK, measure, lambda _: 3)
    assert math.isclose(found.ratio, 0.8)
    assert (found.samples, found.proved) == (8, False)
    assert math.isclose(found.interval.low, 0.8)
    assert math.isfinite(found.interval.high)
