import math

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.errors import ConfigurationFailedError
from tuccl.search.strategies.strategy import Ranked, SearchResult, Stop
from tuccl.search.trials.backend import Measured
from tuccl.search.trials.config import Config, Task
from tuccl.tuning.guaranteed_minimum import KeyRatio
from tuccl.tuning.profile_visits import served_keys

TASK = Task(Collective.ALL_REDUCE, 1 << 10, Shape(2, 1, 2))
FIRST, SECOND = (Config("schedule:0a", "LL", count, 512) for count in (2, 4))
FOUND = {
    TASK: SearchResult(
        ranking=tuple(Ranked(config, 5.0, 3) for config in (FIRST, SECOND)),
        configs_tried=2,
        repeats_measured=6,
        seconds=1.0,
        stop=Stop.BUDGET,
    )
}


def served(
    times_us: dict[Config, tuple[float, ...]], wrong: frozenset[Config] = frozenset()
) -> KeyRatio | None:
    """The key's ratio where stock NCCL takes 10 us and a schedule's samples repeat."""

    def measure(_task: Task, config: Config, repeats: int) -> Measured:
        if config not in times_us:
            raise ConfigurationFailedError("it hung")
        own = times_us[config]
        return Measured(tuple(own[n % len(own)] for n in range(repeats)), 0.0)

    found = served_keys(FOUND, {TASK: 10.0}, measure, lambda _task, config: config not in wrong)
    return found.get(TASK)


def test_bounds_allow_for_what_starts_differ_by() -> None:
    """10 / 5 = 2; samples that are alike leave the 1.5 % of another start."""
    key = served({FIRST: (5.0,)})
    assert key is not None
    assert (key.task, key.schedule, key.ratio) == (TASK, FIRST, 2.0)
    assert key.low == pytest.approx(2.0 / math.exp(0.015))
    assert key.high == pytest.approx(2.0 * math.exp(0.015))


@pytest.mark.parametrize(("time_us", "serves"), [(9.3, True), (9.4, False)])
def test_the_lower_bound_must_be_clear_of_stock_by_5_per_cent(time_us: float, serves: bool) -> None:
    """10 / 9.3 / 1.0151 = 1.0593; 10 / 9.4 / 1.0151 = 1.0480."""
    assert (served({FIRST: (time_us,)}) is not None) is serves


def test_noise_widens_the_bounds() -> None:
    """A deviation of 10 % allows a ratio of 1.25 to be 1.25 / exp(0.13 + 0.1) = 0.99."""
    assert served({FIRST: (8.0,)}) is not None
    assert served({FIRST: (7.2, 8.0, 8.8)}) is None


def test_the_next_schedule_counts_where_the_first_fails_or_is_wrong() -> None:
    for key in (
        served({SECOND: (5.0,)}),
        served({FIRST: (5.0,), SECOND: (5.0,)}, wrong=frozenset([FIRST])),
    ):
        assert key is not None
        assert key.schedule == SECOND
    assert served({}) is None
