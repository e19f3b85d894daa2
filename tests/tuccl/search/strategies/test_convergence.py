"""Equation 5: gain and divergence, twice."""

import math

import numpy as np
import pytest

from tests.tuccl.search.strategies.surfaces import measure_of
from tuccl.search.strategies.meter import Meter
from tuccl.search.strategies.mraco import Convergence, divergence, elite_marginals
from tuccl.search.trials.config import Config
from tuccl.search.trials.space import Family, Space

SPACE = Space("test", (Family("ring", "LL", (1, 2, 4, 8), (64, 128), (1,)),))


def at(channels: int, threads: int = 64) -> Config:
    return Config("ring", "LL", channels, threads, 1)


def test_marginals_are_smoothed_shares_of_the_elite() -> None:
    meter = Meter(measure_of({config: float(config.nchannels) for config in SPACE}), 1)
    for channels in (1, 2):
        meter.reach(at(channels), 1)
    marginals = elite_marginals(SPACE, meter)
    # Half a count for each value of an axis: 1.5 1.5 0.5 0.5 of 4 channels, 2.5 0.5 of 3 threads.
    assert marginals[1] == pytest.approx([0.375, 0.375, 0.125, 0.125])
    assert marginals[2] == pytest.approx([2.5 / 3.0, 0.5 / 3.0, 0.0, 0.0])


def test_divergence_is_summed_over_the_dimensions() -> None:
    old = np.array([[0.5, 0.5], [0.25, 0.75]])
    new = np.array([[0.25, 0.75], [0.25, 0.75]])
    assert divergence(new, old) == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5))
    assert divergence(old, old) == 0.0


def test_two_calm_cycles_are_needed_and_a_gain_starts_over() -> None:
    times = dict.fromkeys(SPACE, 100.0) | {at(8): 90.0}
    meter = Meter(measure_of(times), 1)
    for config in list(SPACE)[:6]:
        meter.reach(config, 1)
    rule = Convergence(min_gain=0.01, max_divergence=10.0)
    assert not rule.reached(SPACE, meter)
    assert not rule.reached(SPACE, meter)
    meter.reach(at(8), 1)
    assert not rule.reached(SPACE, meter)
    assert not rule.reached(SPACE, meter)
    assert rule.reached(SPACE, meter)


def test_an_elite_that_moves_is_not_calm() -> None:
    times = {config: 100.0 - config.nchannels for config in SPACE}
    meter = Meter(measure_of(times), 1)
    rule = Convergence(min_gain=1.0, max_divergence=0.01)
    for channels in (1, 2, 4, 8):
        meter.reach(at(channels), 1)
        assert not rule.reached(SPACE, meter)


def test_a_search_in_which_everything_failed_does_not_converge() -> None:
    rule = Convergence(min_gain=0.01, max_divergence=0.1)
    meter = Meter(measure_of({}), 1)
    assert [rule.reached(SPACE, meter) for _ in range(4)] == [False] * 4
