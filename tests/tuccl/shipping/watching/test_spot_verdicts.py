"""The verdict on spot measurements: silent on noise, not on a change."""

from __future__ import annotations

import math
import random

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.reports.keys import Gain, Runner
from tuccl.search.trials.config import Task
from tuccl.shipping.bench.contenders import StatedKey
from tuccl.shipping.watching.spot_verdicts import (
    SpotPromise,
    SpotTimes,
    Suspicion,
    WatchedKey,
    is_settled,
    judge,
)

pytestmark = pytest.mark.long

SHAPE = Shape(4, 1, 4)
TASKS = [Task(Collective.ALL_REDUCE, 1024 << number, SHAPE) for number in range(9)]
START, LAUNCH = 0.015, 0.003
"""Noise from start to start, and of the middle launches from pass to pass."""


def promise(gain: float = 1.5, deviation: float = 0.015) -> SpotPromise:
    return SpotPromise(stated(Gain(gain, gain * 0.97, gain * 1.03)), deviation)


def stated(gain: Gain) -> StatedKey:
    return StatedKey(
        operation=Collective.ALL_REDUCE,
        size_bytes=1024,
        shape=SHAPE,
        stock_us=20.0 * gain.ratio,
        table_us=20.0,
        gain=gain,
        runner=Runner.PLUGIN,
        runs="ring LL",
    )


def look(
    rng: random.Random,
    promised: SpotPromise,
    gain: float = 1.0,
    slow: float = 1.0,
    noise: float = 1.0,
    passes: int = 5,
) -> WatchedKey:
    """A look at nine keys, the first of which has these parts of gain and time that are stated."""

    def times(middle_us: float) -> list[float]:
        start = middle_us * math.exp(rng.gauss(0.0, START * noise))
        return [start * math.exp(rng.gauss(0.0, LAUNCH * noise)) for _ in range(passes)]

    found = {}
    for task in TASKS:
        kept = 1.0 if task != TASKS[0] else gain
        stock_us = promised.stated.stock_us * (1.0 if task != TASKS[0] else slow)
        ratio = promised.stated.gain.ratio
        found[task] = SpotTimes(times(stock_us), times(stock_us / ratio / kept))
    return judge(dict.fromkeys(TASKS, promised), found)[0]


def is_confirmed(
    rng: random.Random,
    promised: SpotPromise,
    gain: float = 1.0,
    slow: float = 1.0,
    noise: float = 1.0,
) -> bool:
    """Whether two looks agree, as a watch requires."""
    return all(look(rng, promised, gain, slow, noise).suspicion is not None for _ in range(2))


def test_200_watches_of_an_unchanged_machine_are_silent() -> None:
    rng = random.Random(1)
    assert not any(is_confirmed(rng, promise()) for _ in range(200))


@pytest.mark.parametrize("noise", [2.0, 4.0])
def test_noise_beyond_what_the_table_recorded_rarely_alarms(noise: float) -> None:
    rng = random.Random(2)
    alarms = sum(is_confirmed(rng, promise(), noise=noise) for _ in range(200))
    assert alarms <= (0 if noise < 3 else 10)


def test_the_noise_that_a_table_recorded_widens_the_bounds() -> None:
    rng = random.Random(3)
    noisy = promise(1.2, deviation=0.1)
    assert not any(is_confirmed(rng, noisy, noise=6.0) for _ in range(100))


@pytest.mark.parametrize(
    ("gain", "slow", "suspicion"),
    [
        (1 / 1.5, 1.0, Suspicion.SLOWER_THAN_PROMISED),
        (0.8, 1.0, Suspicion.SLOWER_THAN_PROMISED),
        (1.0, 2.0, Suspicion.SLOWER_THAN_RECORDED),
        (1.0, 1.6, Suspicion.SLOWER_THAN_RECORDED),
    ],
)
def test_a_change_is_seen_20_of_20_times(gain: float, slow: float, suspicion: Suspicion) -> None:
    rng = random.Random(4)
    for _ in range(20):
        for _ in range(2):
            assert look(rng, promise(), gain, slow).suspicion is suspicion


def test_a_faster_machine_is_no_change() -> None:
    rng = random.Random(5)
    assert not any(is_confirmed(rng, promise(), 1.3, 0.5) for _ in range(100))


def test_a_promise_without_bounds_is_as_uncertain_as_another_start() -> None:
    bare = SpotPromise(stated(Gain(1.5, None, None)), 0.02)
    assert bare.least == pytest.approx(1.5 * math.exp(-0.04))
    assert promise().least == pytest.approx(1.5 * 0.97 * math.exp(-0.015))


def test_a_slower_stock_nccl_alone_costs_a_job_nothing() -> None:
    rng = random.Random(6)
    faster = [look(rng, promise(), gain=2.0, slow=2.0) for _ in range(20)]
    assert {each.suspicion for each in faster} == {None}


def test_a_single_key_is_judged_by_its_own_noise() -> None:
    task, promised = TASKS[0], promise()
    quiet = SpotTimes([30.0, 30.1, 29.9, 30.0, 30.1], [29.9, 30.0, 30.1, 30.0, 30.0])
    (verdict,) = judge({task: promised}, {task: quiet})
    assert verdict.suspicion is Suspicion.SLOWER_THAN_PROMISED
    restless = SpotTimes([20.0, 30.0, 50.0, 25.0, 40.0], [29.9, 30.0, 30.1, 30.0, 30.0])
    (verdict,) = judge({task: promised}, {task: restless})
    assert verdict.suspicion is None


def test_further_passes_stop_when_starts_differ_by_more_than_launches() -> None:
    """Over nine keys the reach of a start is 3.7 deviations: 5.5 % at 1.5 %, a quarter 1.4 %."""
    keys = dict.fromkeys(TASKS, promise())
    quiet = {task: [20.0, 20.02, 19.98] for task in TASKS}
    assert is_settled(keys, quiet)
    # The mean of three is known to 4.5 standard errors of 0.58 %, as all keys vary alike.
    restless = {task: [20.0, 20.2, 19.8] for task in TASKS}
    assert not is_settled(keys, restless)
    assert is_settled(dict.fromkeys(TASKS, promise(deviation=0.1)), restless)
    assert not is_settled(keys, quiet | {TASKS[3]: [20.0, 24.0, 17.0]})


def test_fewer_passes_of_quiet_keys_find_no_less() -> None:
    """Of a loss that half of all looks find with five passes, as many are found with three."""
    rng = random.Random(7)
    found = {
        passes: sum(
            look(rng, promise(), 0.87, passes=passes).suspicion is not None for _ in range(60)
        )
        for passes in (3, 5)
    }
    assert found[3] >= found[5] - 10, found
