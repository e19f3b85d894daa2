"""The verdict on spot measurements: silent on noise, not on a change."""

from __future__ import annotations

import math
import random

import pytest

from tuccl.lookup_tables.table import Operation, Shape
from tuccl.statistics.intervals import Interval
from tuccl.trials.config import Task
from tuccl.watching.spot_verdicts import Promise, SpotTimes, SpotVerdict, Suspicion, judge

TASK = Task(Operation.ALL_REDUCE, 65536, Shape(4, 1, 4))
KEYS = 9
START, LAUNCH = 0.015, 0.01
"""Noise from start to start, and from launch to launch."""


def promise(gain: float = 1.5, deviation: float = 0.015) -> Promise:
    return Promise(gain, Interval(gain * 0.97, gain * 1.03), 20.0, 20.0 * gain, deviation)


def look(
    rng: random.Random, stated: Promise, gain: float = 1.0, slow: float = 1.0, noise: float = 1.0
) -> SpotVerdict:
    """A look at a key whose gain and time are these parts of those stated."""

    def times(middle_us: float) -> list[float]:
        start = middle_us * math.exp(rng.gauss(0.0, START * noise))
        return [start * math.exp(rng.gauss(0.0, LAUNCH * noise)) for _ in range(5)]

    stock_us = stated.stock_us * slow
    return judge(TASK, stated, SpotTimes(times(stock_us), times(stock_us / stated.gain / gain)), 9)


def is_confirmed(
    rng: random.Random, stated: Promise, gain: float = 1.0, slow: float = 1.0, noise: float = 1.0
) -> bool:
    """Whether two looks agree, as a watch requires."""
    return all(look(rng, stated, gain, slow, noise).suspicion is not None for _ in range(2))


def test_20_of_20_watches_of_an_unchanged_machine_are_silent_and_2000_more() -> None:
    rng = random.Random(1)
    for _ in range(2020 * KEYS // 9):
        assert not is_confirmed(rng, promise())


@pytest.mark.parametrize("noise", [2.0, 4.0])
def test_noise_beyond_what_the_table_recorded_rarely_alarms(noise: float) -> None:
    rng = random.Random(2)
    alarms = sum(is_confirmed(rng, promise(), noise=noise) for _ in range(200))
    assert alarms <= (0 if noise < 3 else 10)


def test_the_noise_that_a_table_recorded_widens_the_bounds() -> None:
    rng = random.Random(3)
    noisy = promise(1.2, deviation=0.1)
    assert not any(is_confirmed(rng, noisy, noise=6.0) for _ in range(300))


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
    bare = Promise(1.5, None, 20.0, 30.0, 0.02)
    assert bare.least == pytest.approx(1.5 * math.exp(-0.04))
    assert promise().least == pytest.approx(1.5 * 0.97 * math.exp(-0.015))
