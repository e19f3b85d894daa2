"""Properties of every strategy."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.provenance import Provenance
from lookup_tables.table import Shape
from tests.tuccl.search.strategies.surfaces import Noisy, measure_of, surface_us
from tuccl.errors import BudgetSpentError, ConfigurationFailedError, UsageError
from tuccl.search.strategies.meter import Measure, Meter
from tuccl.search.strategies.strategies import make_strategy
from tuccl.search.strategies.strategy import SearchResult, Stop, run_search
from tuccl.search.trials.backend import Measured
from tuccl.search.trials.config import Config, Task
from tuccl.search.trials.space import Family, Space
from tuccl.workspace.measurement_log import MeasurementLog

pytestmark = pytest.mark.long

NAMES = (
    *("mraco", "algorithm-1", "optuna-hyperband", "tpe", "coordinate", "random", "grid"),
    *("tpe@1", "coordinate@3"),
)
HOLE = Config("ring", "Simple", 8, 256, 1 << 20)
SPACE = Space(
    "test",
    tuple(
        Family("ring", protocol, (1, 2, 4, 8, 16), (64, 128, 256, 512), (1 << 18, 1 << 20, 1 << 22))
        for protocol in ("LL", "LL128", "Simple")
    ),
    frozenset({HOLE}),
)
TINY = Space("tiny", (Family("ring", "LL", (1, 2, 4), (64, 128), (1, 2)),))
WARM = (HOLE, Config("nowhere", "LL"), Config("ring", "LL", 4, 128, 1 << 20))
every_strategy = pytest.mark.parametrize("name", NAMES)


def run(
    name: str, measure: Measure, budget_s: float, space: Space = SPACE, seed: int = 0
) -> SearchResult:
    meter = Meter(measure, 9, budget_s)
    return run_search(make_strategy(name), space, meter, first=WARM, seed=seed)


@every_strategy
def test_never_proposes_what_is_outside_the_space_nor_asks_for_what_it_has(name: str) -> None:
    measured = Noisy(0)
    run(name, measured, 0.06)
    taken: dict[Config, int] = {}
    for config, repeats in measured.asked:
        assert config in SPACE
        assert repeats > taken.get(config, 0)
        taken[config] = repeats
    assert len(taken) > 10


@every_strategy
def test_ends_within_the_budget(name: str) -> None:
    for budget_s in (0.002, 0.01, 0.04):
        measured = Noisy(1)
        result = run(name, measured, budget_s)
        dearest_s = max(sum(measured(config, 9).samples_us) * 1e-6 for config in SPACE)
        assert result.seconds <= max(budget_s, 0.9 * budget_s + dearest_s)
        assert result.stop in {Stop.BUDGET, Stop.CONVERGED}


@every_strategy
def test_a_larger_budget_begins_like_a_smaller_one(name: str) -> None:
    asked = []
    for budget_s in (0.01, 0.02):
        measured = Noisy(2)
        meter = Meter(measured, 9, budget_s)
        with pytest.raises(BudgetSpentError):
            make_strategy(name).explore(SPACE, meter, [], 0)
        asked.append(measured.asked)
    assert asked[1][: len(asked[0])] == asked[0]


@every_strategy
def test_same_seed_same_steps(name: str) -> None:
    first, second = Noisy(3), Noisy(3)
    assert run(name, first, 0.02, seed=5) == run(name, second, 0.02, seed=5)
    assert first.asked == second.asked


@every_strategy
def test_finds_the_best_of_a_tiny_space_without_noise(name: str) -> None:
    samples_us = {c: 10.0 + (c.nchannels * 7 + c.nthreads + c.buffer_bytes) % 13 for c in TINY}
    result = run(name, measure_of(samples_us), float("inf"), TINY)
    assert result.stop is Stop.EXHAUSTED
    assert result.configs_tried == TINY.size
    assert samples_us[result.ranking[0].config] == min(samples_us.values())
    assert result.ranking[0].samples >= 9


def failing(measure: Measure, fails: Callable[[Config], bool]) -> Measure:
    failed: set[Config] = set()

    def measured(config: Config, repeats: int) -> Measured:
        assert config not in failed, "asked again for what failed"
        if fails(config):
            failed.add(config)
            raise ConfigurationFailedError("hung", seconds=1e-4)
        return measure(config, repeats)

    return measured


@every_strategy
def test_goes_on_where_configurations_fail(name: str) -> None:
    def fails(config: Config) -> bool:
        return config.nchannels == 2

    samples_us = {config: surface_us(config) for config in TINY}
    result = run(name, failing(measure_of(samples_us), fails), float("inf"), TINY)
    working = {config: time for config, time in samples_us.items() if not fails(config)}
    assert samples_us[result.ranking[0].config] == min(working.values())
    assert {config for config, _ in result.failures} == set(samples_us) - set(working)
    assert {reason for _, reason in result.failures} == {"hung"}
    assert not any(fails(ranked.config) for ranked in result.ranking)


@every_strategy
def test_chooses_nothing_where_everything_fails(name: str) -> None:
    result = run(name, failing(Noisy(0), lambda _: True), float("inf"), TINY)
    assert result.ranking == ()
    assert len(result.failures) == TINY.size
    assert result.seconds == pytest.approx(1e-4 * TINY.size)


class Counting:
    """A backend that counts what it is asked for."""

    name = "counting"
    provenance = Provenance("counting")
    restart_s = 0.0

    def __init__(self) -> None:
        self.samples = 0
        self._noisy = Noisy(4)

    def measure(self, _: Task, config: Config, first: int, repeats: int) -> Measured:
        self.samples += repeats
        samples_us = self._noisy(config, first + repeats).samples_us[first:]
        return Measured(samples_us, sum(samples_us) * 1e-6)

    def restart(self) -> None:
        """All starts are alike."""

    def check(self, task: Task, config: Config) -> None:
        pass


@every_strategy
def test_resumes_from_a_log_without_measuring_anything_again(name: str, tmp_path: Path) -> None:
    task = Task(Collective.ALL_REDUCE, 1 << 20, Shape(4, 1, 4))
    results, measured = [], []
    for _ in range(2):
        backend = Counting()
        with MeasurementLog(tmp_path / "log", backend, "test") as log:
            results.append(run(name, partial(log.measure, task), 0.02))
        measured.append(backend.samples)
    assert results[0] == results[1]
    assert measured[0] > 0
    assert measured[1] == 0


@pytest.mark.parametrize("name", ["", "mraco@3", "tpe@0", "tpe@x", "hyperband", f"tpe@{10**400}"])
def test_unknown_strategies_are_named(name: str) -> None:
    with pytest.raises(UsageError, match="is unknown: use one of mraco, "):
        make_strategy(name)
