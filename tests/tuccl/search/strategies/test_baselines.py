"""Properties of single baselines; test_strategies.py has those of all strategies."""

import pytest

from lookup_tables.collective import Collective
from tests.tuccl.search.strategies.surfaces import Noisy, measure_of, paper_space, surface_us
from tuccl.errors import BudgetSpentError
from tuccl.search.strategies.algorithm_1 import Algorithm1
from tuccl.search.strategies.baselines import Grid, OptunaHyperband
from tuccl.search.strategies.coordinate import Coordinate
from tuccl.search.strategies.hyperband import rung_repeats
from tuccl.search.strategies.meter import Meter
from tuccl.search.trials.config import Config
from tuccl.search.trials.presets import nccl_space
from tuccl.search.trials.space import Family, Space


def test_a_pass_of_algorithm_1_costs_91_full_evaluations_for_40_configurations() -> None:
    noisy = Noisy(0)

    class PassDoneError(Exception):
        pass

    def measure(config: Config, repeats: int) -> object:
        if config not in seen and len(seen) == 40:
            raise PassDoneError
        seen.add(config)
        return noisy(config, repeats)

    seen: set[Config] = set()
    meter = Meter(measure, 27)  # type: ignore[arg-type]
    with pytest.raises(PassDoneError):
        Algorithm1().explore(paper_space("ring"), meter, [], 0)
    assert meter.repeats == 2452


@pytest.mark.long
def test_optunas_hyperband_prunes_most_early_and_resumes_nothing() -> None:
    noisy = Noisy(0)
    budget_s = 60 * 27 * 100e-6
    with pytest.raises(BudgetSpentError):
        OptunaHyperband().explore(paper_space("ring"), Meter(noisy, 27, budget_s), [], 0)
    reached: dict[Config, int] = {}
    for config, repeats in noisy.asked:
        assert repeats in {1, 3, 9, 27}
        reached[config] = repeats
    assert sum(repeats == 27 for repeats in reached.values()) < len(reached) / 2
    order = list(dict.fromkeys(config for config, _ in noisy.asked))
    assert [config for config, repeats in noisy.asked if repeats == 1] == order


def test_coordinate_descent_follows_each_axis_downhill_in_the_fastest_family_first() -> None:
    space = paper_space("ring")
    noisy = Noisy(0, spread=0.0)
    with pytest.raises(BudgetSpentError):
        Coordinate(1).explore(space, Meter(noisy, 27, 60 * 150e-6), [], 0)
    asked = [config for config, _ in noisy.asked]
    opening = [Config("ring", name, 16, 512, 4 << 20) for name in ("LL", "LL128", "Simple")]
    assert asked[:3] == opening
    assert {config.nchannels for config in asked[3:6]} == {8}
    assert asked[6].protocol == "Simple"
    # Unimodal and separable: one descent ends at the best of the space.
    best = min(space, key=surface_us)
    assert best in asked[:40]


def test_the_grid_goes_in_the_order_of_the_space() -> None:
    space = Space("tiny", (Family("ring", "LL", (1, 2), (64, 128), (0,)),))
    meter = Meter(measure_of(dict.fromkeys(space, 1.0)), 3)
    Grid().explore(space, meter, [], 0)
    assert meter.configs == list(space)
    assert meter.repeats == 12


def test_rungs_end_at_the_full_budget() -> None:
    assert rung_repeats(27, 3) == (1, 3, 9, 27)
    assert rung_repeats(5, 3) == (1, 3, 5)
    assert rung_repeats(1, 3) == (1,)


def test_a_search_of_nccl_opens_with_its_own_values() -> None:
    space = nccl_space(Collective.ALL_REDUCE)
    meter = Meter(measure_of(dict.fromkeys(space, 1.0)), 1, budget_s=7.5e-6)
    with pytest.raises(BudgetSpentError):
        Coordinate(1).explore(space, meter, [], 0)
    opened = meter.configs[: len(space.families)]
    assert opened[0].is_default
    most = [family.nchannels[-1] for family in space.families]
    assert [config.nchannels for config in opened] == most
    assert all(not config.nthreads and not config.buffer_bytes for config in opened)
