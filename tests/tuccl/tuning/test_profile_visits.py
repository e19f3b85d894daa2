"""The first visit of a process profile: which calls of a key are timed, and for how long."""

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.errors import ConfigurationFailedError
from tuccl.search.trials.backend import Measured
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.search.trials.space import Family, Space
from tuccl.tuning.profile_visits import Visitor

TASK = Task(Collective.ALL_REDUCE, 1 << 26, Shape(4, 4, 1))
CHANNELS = (1, 2, 4, 8, 16)
AXES = ((0,), (0,), (0,))
STOCK_US = 100.0


def call(algorithm: str, protocol: str, nchannels: int) -> Config:
    return Config(algorithm, protocol, nchannels)


class Machine:
    """Times of calls in us; those without one fail. Keeps what was timed, in its order."""

    def __init__(self, times_us: dict[Config, float], seconds: float = 1.0) -> None:
        self.times_us = times_us
        self.seconds = seconds
        self.timed: dict[Config, None] = {}

    def __call__(self, task: Task, config: Config, repeats: int) -> Measured:
        assert task == TASK
        self.timed.setdefault(config)
        if config not in self.times_us:
            raise ConfigurationFailedError("refused")
        return Measured((self.times_us[config],) * repeats, self.seconds * repeats)


def visited(machine: Machine, first_s: float | None = None) -> tuple[Visitor, list[Config]]:
    families = (
        Family("default", "", (0,), *AXES),
        Family("ring", "Simple", CHANNELS, *AXES),
        Family("tree", "LL", CHANNELS, *AXES),
    )
    seconds = {} if first_s is None else {TASK: first_s}
    space = Space("test", families)
    visitor = Visitor({TASK: space}, machine, {TASK: STOCK_US}, {}, first_s=seconds)
    visitor.visit(ProcessProfile())
    return visitor, list(machine.timed)


def times(ring_us: dict[int, float], tree_us: dict[int, float]) -> dict[Config, float]:
    return (
        {STOCK: STOCK_US}
        | {call("ring", "Simple", count): time_us for count, time_us in ring_us.items()}
        | {call("tree", "LL", count): time_us for count, time_us in tree_us.items()}
    )


def test_what_is_far_behind_with_few_and_many_channels_is_not_looked_at_further() -> None:
    ring = dict.fromkeys(CHANNELS, 90.0)
    machine = Machine(times(ring, dict.fromkeys(CHANNELS, 181.0)))
    _, timed = visited(machine)
    assert [config.nchannels for config in timed if config.algorithm == "tree"] == [4, 1, 16]
    assert {config.nchannels for config in timed if config.algorithm == "ring"} == set(CHANNELS)


def test_what_is_hopeless_with_its_middle_count_is_not_looked_at_with_others() -> None:
    tree = dict.fromkeys(CHANNELS, 361.0) | {8: 50.0}
    _, timed = visited(Machine(times(dict.fromkeys(CHANNELS, 90.0), tree)))
    assert [config.nchannels for config in timed if config.algorithm == "tree"] == [4]


def test_one_count_that_keeps_up_is_enough() -> None:
    tree = {1: 500.0, 2: 300.0, 4: 150.0, 8: 80.0, 16: 400.0}
    visitor, timed = visited(Machine(times(dict.fromkeys(CHANNELS, 90.0), tree)))
    assert call("tree", "LL", 8) in timed
    assert visitor.best_calls(TASK)[0] == call("tree", "LL", 8)


def test_what_is_refused_with_few_and_many_channels_is_not_asked_for_again() -> None:
    _, timed = visited(Machine(times(dict.fromkeys(CHANNELS, 90.0), {})))
    assert [config.nchannels for config in timed if config.algorithm == "tree"] == [4, 1, 16]


def test_three_counts_are_timed_in_any_case_and_the_rest_while_seconds_last() -> None:
    equal = times(dict.fromkeys(CHANNELS, 90.0), dict.fromkeys(CHANNELS, 95.0))
    _, timed = visited(Machine(equal), first_s=1.5)
    middles = [STOCK, call("ring", "Simple", 4), call("tree", "LL", 4)]
    ends = [
        *middles,
        *(call("ring", "Simple", count) for count in (1, 16)),
        *(call("tree", "LL", count) for count in (1, 16)),
    ]
    assert timed == [*ends, *(call("ring", "Simple", count) for count in (2, 8))]
    assert len(visited(Machine(equal))[1]) == 1 + 2 * len(CHANNELS)
    assert visited(Machine(equal), first_s=0.0)[1] == ends
