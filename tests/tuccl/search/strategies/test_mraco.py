"""MRACO and its proposer on surfaces whose optimum is known."""

import pytest

from tests.tuccl.search.strategies.surfaces import Noisy, measure_of, paper_space, surface_us
from tuccl.search.strategies.meter import Meter
from tuccl.search.strategies.mraco import Mraco
from tuccl.search.strategies.strategy import Stop, run_search
from tuccl.search.strategies.tpe import TpeProposer
from tuccl.search.trials.config import Config
from tuccl.search.trials.space import Family, Space

ONE_CYCLE = Mraco(max_cycles=1)


@pytest.mark.long
def test_finds_within_one_per_cent_in_two_per_cent_of_the_grids_cost() -> None:
    space = paper_space("ring")
    best_us = min(surface_us(config) for config in space)
    budget_s = 0.017 * 27e-6 * sum(surface_us(config) for config in space)
    regrets, costs = [], []
    for seed in range(6):
        meter = Meter(Noisy(seed), 27, budget_s)
        result = run_search(Mraco(), space, meter, seed=seed)
        regrets.append(surface_us(result.ranking[0].config) / best_us - 1.0)
        costs.append(result.seconds)
    assert sum(regret <= 0.01 for regret in regrets) >= 5
    assert max(costs) <= budget_s


def test_paused_configurations_resume_with_a_growing_number_of_samples() -> None:
    measured = Noisy(1)
    run_search(ONE_CYCLE, paper_space("ring"), Meter(measured, 27), seed=1)
    seen: dict[Config, int] = {}
    for config, repeats in measured.asked:
        assert repeats > seen.get(config, 0), "asked again for what it already has"
        seen[config] = repeats


def test_what_is_far_behind_the_best_is_measured_once() -> None:
    measured = Noisy(2, spread=0.01)
    run_search(ONE_CYCLE, paper_space("ring"), Meter(measured, 27), seed=2)
    best_us = min(surface_us(config) for config, _ in measured.asked)
    longer = {config for config, repeats in measured.asked if repeats > 3}
    assert longer
    # The first ones are measured before there is anything to be behind of.
    late = {config for config, repeats in measured.asked[40:] if repeats > 3}
    assert all(surface_us(config) < 1.3 * best_us for config in late & longer)


def test_warm_configurations_are_tried_first() -> None:
    measured = Noisy(0)
    warm = [Config("ring", "Simple", 8, 416, 1 << 20), Config("nowhere", "LL")]
    run_search(ONE_CYCLE, paper_space("ring"), Meter(measured, 27), first=warm)
    assert measured.asked[0][0] == warm[0]


def test_a_space_smaller_than_a_bracket_is_searched_whole() -> None:
    space = Space("tiny", (Family("ring", "LL", (1, 2), (64, 128), (0,)),))
    exact = measure_of({c: float(c.nchannels * 10 + c.nthreads) for c in space})
    result = run_search(Mraco(), space, Meter(exact, 27))
    assert result.configs_tried == 4
    assert result.stop is Stop.EXHAUSTED
    assert result.ranking[0].config == Config("ring", "LL", 1, 64, 0)


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_converges_by_equation_5_where_nothing_is_left_to_gain(seed: int) -> None:
    result = run_search(Mraco(), paper_space("ring"), Meter(Noisy(seed, 0.002), 27), seed=seed)
    assert result.stop is Stop.CONVERGED
    assert result.configs_tried < 1000


def test_proposer_gives_every_configuration_once() -> None:
    space = Space("small", (Family("ring", "LL", (1, 2, 4, 8), (64, 128, 256), (0, 1)),))
    proposer = TpeProposer(space, seed=0)
    proposed: list[Config] = []
    while not proposer.exhausted:
        proposed.append(proposer.propose())
        proposer.tell(proposed[-1], 1.0 + proposed[-1].nthreads)
    assert sorted(proposed) == sorted(space)
    with pytest.raises(ValueError, match="every configuration of small"):
        proposer.propose()
