"""Equations 2 and 3 of the paper, on spaces small enough to work them by hand."""

import math

import pytest

from tuccl.search.strategies.parzen import ParzenSampler, fast_and_slow
from tuccl.search.trials.config import Config
from tuccl.search.trials.space import Family, Space

CHANNELS = (1, 2, 4, 8, 16)
"""Positions 0, 1/4, 1/2, 3/4 and 1."""


def space_of_channels(*protocols: str) -> Space:
    return Space("test", tuple(Family("ring", p, CHANNELS, (0,), (0,)) for p in protocols))


def told(space: Space, times_us: dict[Config, float], seed: int = 0) -> ParzenSampler:
    sampler = ParzenSampler(space, seed)
    assert sampler.take(times_us) == list(times_us)
    for config, time_us in times_us.items():
        sampler.tell(config, time_us)
    return sampler


def ring(protocol: str, nchannels: int) -> Config:
    return Config("ring", protocol, nchannels)


def test_the_next_ones_are_those_with_the_largest_ratio_of_fast_to_slow() -> None:
    # At 1/4, 1/2, 3/4: log g - log l = (-1/16 + 9/16) / 0.02 = 25, 0 and -25.
    times_us = {ring("Simple", 1): 10.0, ring("Simple", 16): 20.0}
    sampler = told(space_of_channels("Simple"), times_us)
    assert sampler.sample(2) == [ring("Simple", 2), ring("Simple", 4)]
    assert sampler.sample(2) == [ring("Simple", 8)]
    assert sampler.exhausted
    assert sampler.sample(1) == []


def test_the_kernels_of_ll128_are_twice_as_wide() -> None:
    # Fast: LL128 at 0. Slow: Simple at 1. sigma^2 is 0.04 for LL128 and 0.01 for Simple.
    # log g - log l = -d^2 / 0.08 + e^2 / 0.02, where d^2 and e^2 have 1 more in the other protocol:
    # LL128 at 1/4: -0.78 + 78.1 = 77.3; at 1: -12.5 + 50 = 37.5;
    # Simple at 0: -12.5 + 50 = 37.5; at 1/4: -13.28 + 28.13 = 14.8.
    # With one width the last and LL128 at 1 would be
    # -1.0625 / 0.02 + 0.5625 / 0.02 = -25 and -50 + 50 = 0.
    times_us = {ring("LL128", 1): 10.0, ring("Simple", 16): 20.0}
    sampler = told(space_of_channels("LL128", "Simple"), times_us)
    first = sampler.sample(4)
    # LL128 at 1/4, 1/2, 3/4: 77.3, 59.4, 46.1.
    assert first[:3] == [ring("LL128", 2), ring("LL128", 4), ring("LL128", 8)]
    assert first[3] in {ring("LL128", 16), ring("Simple", 1)}
    assert sampler.sample(2)[1] == ring("Simple", 2)


@pytest.mark.parametrize(("measured", "fast"), [(1, 1), (6, 1), (7, 2), (13, 2), (14, 3), (20, 3)])
def test_the_fastest_15_per_cent_are_the_fast_ones(measured: int, fast: int) -> None:
    times_us = {ring("Simple", n): float(n) for n in range(measured, 0, -1)}
    found = fast_and_slow(times_us)
    assert found == (list(times_us)[measured - fast :], list(times_us)[: measured - fast])


def test_a_failure_is_slow() -> None:
    times_us = {ring("Simple", 1): math.inf, ring("Simple", 16): 20.0}
    sampler = told(space_of_channels("Simple"), times_us)
    assert sampler.sample(1) == [ring("Simple", 8)]


@pytest.mark.parametrize(
    "times_us", [{}, {ring("LL", 4): 1.0}, {ring("LL", 4): 1.0, ring("LL", 8): 1.0}]
)
def test_without_both_fast_and_slow_ones_it_draws_uniformly(times_us: dict[Config, float]) -> None:
    space = space_of_channels("LL")
    drawn = [told(space, times_us, seed).sample(1)[0] for seed in range(40)]
    assert set(drawn) == set(space) - set(times_us)
