"""MRACO and its proposer on surfaces whose optimum is known."""

import zlib

import numpy as np
import pytest

from tuccl.search.config import Config
from tuccl.search.mraco import MracoOptions, search
from tuccl.search.space import Family, Space, paper_space
from tuccl.search.tpe import TpeProposer

PROTOCOL_FACTOR = {"LL": 1.3, "LL128": 1.1, "Simple": 1.0}


def surface_us(config: Config) -> float:
    """Best at Simple, 8 channels, 416 threads, 1 MiB."""
    channels = 1.0 + 0.3 * abs(np.log2(config.nchannels) - 3.0)
    threads = 1.0 + 0.002 * abs(config.nthreads - 416)
    buffers = 1.0 + 0.05 * abs(np.log2(config.buffer_bytes) - 20.0)
    return float(100.0 * PROTOCOL_FACTOR[config.protocol] * channels * threads * buffers)


class Noisy:
    """Five per cent of noise that depends on the configuration and the sample's number only."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.asked: list[tuple[Config, int]] = []

    def __call__(self, config: Config, repeats: int) -> tuple[float, ...]:
        self.asked.append((config, repeats))
        rng = np.random.default_rng([self.seed, zlib.crc32(repr(config).encode())])
        return tuple(surface_us(config) * np.exp(rng.normal(0.0, 0.05, repeats)))


def test_finds_within_one_per_cent_in_two_per_cent_of_the_grids_cost() -> None:
    space = paper_space("ring")
    best_us = min(surface_us(config) for config in space)
    regrets, costs = [], []
    for seed in range(10):
        result = search(space, Noisy(seed), MracoOptions(seed=seed))
        regrets.append(surface_us(result.ranking[0].config) / best_us - 1.0)
        costs.append(result.repeats_measured / (27 * space.size))
    assert sum(regret <= 0.01 for regret in regrets) >= 8
    assert max(costs) < 0.02


def test_same_seed_same_measurements_same_steps() -> None:
    first, second = Noisy(3), Noisy(3)
    options = MracoOptions(seed=3)
    assert search(paper_space("ring"), first, options) == search(
        paper_space("ring"), second, options
    )
    assert first.asked == second.asked


def test_no_configuration_is_proposed_twice_and_none_outside_the_space() -> None:
    measured = Noisy(0)
    space = paper_space("tree")
    search(space, measured, MracoOptions(seed=0))
    fresh = [config for config, repeats in measured.asked if repeats == 1]
    assert len(fresh) == len(set(fresh))
    assert all(config in space for config, _ in measured.asked)


def test_paused_configurations_resume_with_a_growing_number_of_samples() -> None:
    measured = Noisy(1)
    search(paper_space("ring"), measured, MracoOptions(seed=1))
    seen: dict[Config, int] = {}
    for config, repeats in measured.asked:
        assert repeats > seen.get(config, 0), "asked again for what it already has"
        seen[config] = repeats


def test_ranking_holds_only_what_was_measured_at_full_budget_fastest_first() -> None:
    result = search(paper_space("ring"), Noisy(2), MracoOptions(seed=2))
    times = [ranked.time_us for ranked in result.ranking]
    assert times == sorted(times)
    assert all(ranked.samples >= 27 for ranked in result.ranking)


def test_warm_configurations_are_tried_first() -> None:
    measured = Noisy(0)
    warm = [Config("ring", "Simple", 8, 416, 1 << 20), Config("nowhere", "LL")]
    search(paper_space("ring"), measured, MracoOptions(seed=0), warm)
    assert measured.asked[0][0] == warm[0]


def test_a_space_smaller_than_a_bracket_is_searched_whole() -> None:
    space = Space("tiny", (Family("ring", "LL", (1, 2), (64, 128), (0,)),))

    def measure(config: Config, repeats: int) -> tuple[float, ...]:
        return (float(config.nchannels * 10 + config.nthreads),) * repeats

    result = search(space, measure, MracoOptions())
    assert result.configs_tried == 4
    assert result.converged
    assert result.ranking[0].config == Config("ring", "LL", 1, 64, 0)


@pytest.mark.parametrize("count", [1, 7, 40])
def test_proposer_gives_as_many_as_asked_until_the_space_is_exhausted(count: int) -> None:
    space = Space("small", (Family("ring", "LL", (1, 2, 4, 8), (64, 128, 256), (0, 1)),))
    proposer = TpeProposer(space, seed=0)
    proposed: list[Config] = []
    while not proposer.exhausted:
        batch = proposer.propose(count)
        assert len(batch) == min(count, space.size - len(proposed))
        for config in batch:
            proposer.tell(config, 1.0 + config.nthreads)
        proposed += batch
    assert sorted(proposed) == sorted(space)
