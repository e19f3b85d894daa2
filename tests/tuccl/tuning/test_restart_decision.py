"""Decisions by bounds that allow for other starts, against values worked by hand."""

import math
from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from lookup_tables.confirmation import Estimator
from lookup_tables.table import Shape
from tests.tuccl.tuning.test_confirmation import TREE, UNDECIDED, compared
from tuccl.search.statistics.moderation import MeanError, VariancePrior
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.tuning.decision import Comparison, Decision
from tuccl.tuning.restart_decision import (
    Kind,
    allowing_for_starts,
    compared_over_starts,
    stall_costs,
    with_likely,
)

SHAPE = Shape(4, 2, 2)
SETTINGS, SCHEDULES = Kind(SHAPE, is_schedule=False), Kind(SHAPE, is_schedule=True)
FIRST, SECOND, THIRD = (
    Task(Collective.ALL_REDUCE, size_bytes, SHAPE) for size_bytes in (1024, 2048, 4096)
)


def test_without_further_starts_only_gains_beyond_the_deviation_of_starts_are_entries() -> None:
    decisions = {
        FIRST: Decision(compared(1.30, 1.25), None, 20.0, ()),
        SECOND: Decision(compared(1.01, 1.008), None, 20.0, ()),
        THIRD: UNDECIDED,
    }
    found = allowing_for_starts(decisions, STOCK, {SETTINGS: MeanError(0.01, 11)})
    kept = found[FIRST].builtin
    assert kept is not None
    # t of 11 degrees at 0.125 %: 3.895; ln(1.30 / 1.25) is 0.0392.
    width = math.hypot(math.log(1.30 / 1.25), 0.03895)
    assert kept.lower_bound == pytest.approx(1.30 * math.exp(-width), rel=1e-4)
    assert not found[SECOND].has_entry
    assert [rejected.ratio for rejected in found[SECOND].rejected] == [1.01]
    assert found[THIRD] == UNDECIDED
    assert allowing_for_starts(decisions, STOCK, {SETTINGS: MeanError(0.0, 11)}) == decisions


def test_times_of_starts_give_a_mean_with_bounds() -> None:
    logs = {TREE: [2.0, 2.0, 2.0], STOCK: [2.10, 2.12, 2.08]}
    found = compared_over_starts(
        logs,
        3,
        18,
        lambda _: 0,
        lambda _: VariancePrior.of(()),
        0.01,
        TREE,
        STOCK,
        compared(1.3, 1.1),
    )
    assert (found.time_us, found.ratio) == pytest.approx((math.exp(2.0), math.exp(0.10)))
    # Deviation 0.02, its mean's 0.011547; t of 2 degrees at 1 %: 6.9646, so 0.08042.
    assert found.interval.low == pytest.approx(math.exp(0.10 - 0.08042), rel=1e-5)
    assert found.interval.high == pytest.approx(math.exp(0.10 + 0.08042), rel=1e-5)
    assert (found.starts, found.samples, found.estimator) == (3, 18, Estimator.MEAN_OVER_STARTS)


def test_a_call_that_failed_in_a_start_is_not_proved() -> None:
    logs = {TREE: [2.0, 2.0], STOCK: [2.10, 2.12, 2.08]}
    found = compared_over_starts(
        logs,
        3,
        18,
        lambda _: 0,
        lambda _: VariancePrior.of(()),
        0.01,
        TREE,
        STOCK,
        compared(1.3, 1.1),
    )
    assert not found.proved
    assert found.ratio == 1.3


def test_a_schedule_is_compared_with_stock_if_its_reference_is_not_confirmed() -> None:
    """By its ratio to a built-in of 1.30, 1.12, the schedule would fall with it: 1.456 does not."""
    schedule = replace(
        compared(1.12, 1.10), config=Config("schedule:5a5a", "LL"), reference=TREE, reference_us=15
    )
    decisions = {FIRST: Decision(compared(1.30, 1.28), schedule, 20.0, ())}
    between = {SETTINGS: MeanError(0.08, 11), SCHEDULES: MeanError(0.09, 11)}
    found = allowing_for_starts(decisions, STOCK, between)[FIRST]
    assert found.builtin is None
    assert found.schedule is not None
    assert (found.schedule.reference, found.schedule.reference_us) == (STOCK, 20.0)
    assert found.schedule.ratio == pytest.approx(1.456)
    # t of 11 degrees at 0.125 %: 3.895; ln(1.12 / 1.10) is 0.01802, ln(1.30 / 1.28) 0.01550.
    width = math.hypot(0.01802, 0.01550, 0.09 * 3.895)
    assert found.schedule.lower_bound == pytest.approx(1.456 * math.exp(-width), rel=1e-3)


EIGHT, FOUR = Config("phases:88", "LL128"), Config("phases:44", "LL128")
"""Schedules of eight lanes a rail, and of four."""


def shown(config: Config, ratio: float, stall_cost: float) -> Comparison:
    return replace(
        compared(ratio, 0.0), config=config, samples=5, stall_cost=stall_cost, reference_us=20.0
    )


def test_what_a_schedule_stalls_at_other_sizes_counts_at_this_one() -> None:
    """Of 15 samples of the eight lanes two stalled, none of them at the first key."""
    first = Decision(None, None, 20.0, (shown(EIGHT, 3.4, 1.0), shown(FOUR, 3.2, 1.0)))
    others = [Decision(None, None, 20.0, (shown(EIGHT, 3.0, 1.4), shown(FOUR, 2.8, 1.0)))] * 2
    costs = stall_costs([first, *others])
    # All 30 samples: (15 + 5 + 2 * 7) / 30, which counts as ten samples of either schedule.
    alike = 34 / 30
    assert costs == pytest.approx({"88": (19 + 10 * alike) / 25, "44": (15 + 10 * alike) / 25})
    likely = with_likely(first, None, STOCK, costs)
    assert likely.schedule is not None
    assert likely.schedule.config == FOUR
    assert [c.config for c in likely.rejected] == [EIGHT]


def test_stalls_that_a_ratio_has_counted_do_not_count_twice() -> None:
    mean = replace(shown(EIGHT, 3.3, 1.4), stalls=2, estimator=Estimator.MEAN_OF_SAMPLES)
    decision = Decision(None, None, 20.0, (mean, shown(FOUR, 3.2, 1.0)))
    likely = with_likely(decision, None, STOCK, {"88": 1.4, "44": 1.0})
    assert likely.schedule == mean


def test_of_likely_calls_that_trainings_hide_the_one_with_few_channels_is_timed() -> None:
    """Four lanes stall less, so that they are first in a job, and half their channels next."""
    fewer = replace(FOUR, nchannels=8)
    calls = (
        shown(replace(EIGHT, nchannels=16), 3.3, 1.0),
        shown(replace(FOUR, nchannels=16), 3.2, 1.0),
        shown(fewer, 3.0, 1.0),
    )
    for is_hidden, config in ((False, calls[1].config), (True, fewer)):
        decision = Decision(None, None, 20.0, calls, is_hidden=is_hidden)
        likely = with_likely(decision, None, STOCK, {"88": 1.4, "44": 1.0})
        assert likely.schedule is not None
        assert likely.schedule.config == config


def test_settings_of_nccl_have_no_stall_costs() -> None:
    assert stall_costs([Decision(compared(1.3, 1.1), None, 20.0, ())]) == {}
