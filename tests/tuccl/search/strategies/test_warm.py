"""The search that begins where an earlier one ended."""

from __future__ import annotations

from tests.tuccl.search.strategies.surfaces import Noisy, surface_us
from tests.tuccl.search.strategies.test_strategies import HOLE, SPACE
from tuccl.search.strategies.meter import Meter
from tuccl.search.strategies.strategy import SearchResult, Stop, run_search
from tuccl.search.strategies.warm import Warm
from tuccl.search.trials.config import Config

BEST = Config("ring", "Simple", 8, 512, 1 << 20)


def run(*first: Config, spread: float = 0.0, budget_s: float = float("inf")) -> SearchResult:
    return run_search(Warm(), SPACE, Meter(Noisy(0, spread), 3, budget_s), first=first)


def test_from_near_the_best_it_moves_there_with_few_samples() -> None:
    near = Config("ring", "Simple", 4, 512, 1 << 18)
    found = run(near)
    assert found.stop is Stop.EXHAUSTED
    assert found.ranking[0].config == BEST
    assert found.configs_tried < 20
    assert SPACE.size > 5 * found.configs_tried


def test_what_was_best_before_is_tried_and_never_left_for_worse() -> None:
    found = run(BEST, Config("ring", "LL", 1, 64, 1 << 18), spread=0.02)
    assert surface_us(found.ranking[0].config) <= 1.1 * surface_us(BEST)
    assert BEST in {ranked.config for ranked in found.ranking}


def test_without_anything_known_each_family_is_looked_at() -> None:
    found = run()
    assert {ranked.config.protocol for ranked in found.ranking} == {"LL", "LL128", "Simple"}
    assert surface_us(found.ranking[0].config) < 1.3 * surface_us(BEST)


def test_holes_and_configurations_outside_the_space_are_not_asked_for() -> None:
    found = run(HOLE, Config("nowhere", "LL"), BEST)
    tried = {ranked.config for ranked in found.ranking}
    assert HOLE not in tried
    assert all(config in SPACE for config in tried)


def test_a_budget_stops_it() -> None:
    assert run(BEST, budget_s=1e-3).stop is Stop.BUDGET
