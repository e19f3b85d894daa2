import math
from itertools import count
from typing import Any

import numpy as np

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.errors import ConfigurationFailedError
from tuccl.search.trials.config import Config, ProcessProfile, Task
from tuccl.search.trials.space import Knob
from tuccl.tuning.knob_proof import worth_setting
from tuccl.tuning.profile_visits import Visit

TASKS = tuple(Task(Collective.ALL_REDUCE, 1 << k, Shape(2, 1, 2)) for k in (10, 20))
A, B = (Knob(((), ((name, "1"),))) for name in ("NCCL_A", "NCCL_B"))
BOTH = B.turned(A.turned(ProcessProfile(), A.values[1]), B.values[1])
VISITS = {
    profile: Visit(profile, dict.fromkeys(TASKS, (profile.default, 1.0)), 0.0, 0.0, 1.0)
    for profile in (BOTH, A.turned(BOTH, ()), B.turned(BOTH, ()), ProcessProfile())
}


class Starts:
    """Times by factors of variables, and of each start by chance; counts starts."""

    def __init__(self, factors: dict[str, float], deviation: float = 0.0, seed: int = 0) -> None:
        self.factors, self.deviation = factors, deviation
        self.chance = np.random.default_rng(seed)
        self.up: ProcessProfile | None = None
        self.starts = 0

    def __call__(self, task: Task, config: Config, number: int) -> tuple[float, ...]:
        if config.profile != self.up:
            self.up, self.starts = config.profile, self.starts + 1
            self.factor = math.exp(self.deviation * self.chance.standard_normal())
        by_variables = math.prod(self.factors.get(name, 1.0) for name, _ in config.settings)
        return (task.size_bytes * self.factor * by_variables,) * number


def proved(*given: Any) -> set[Knob]:
    return {knob for knob, proof in worth_setting(*given).items() if proof.holds}


def test_variables_are_told_apart_in_starts_in_turn() -> None:
    starts = Starts({"NCCL_A": 0.9})
    without = {knob: VISITS[knob.turned(BOTH, ())] for knob in (A, B)}
    assert proved(VISITS[BOTH], without, starts, {}, lambda _: True) == {A}
    assert starts.starts == 5 * 3, "five rounds, since B is not proved by any"
    alone = {A: VISITS[ProcessProfile()]}
    starts = Starts({"NCCL_A": 0.9})
    only = VISITS[A.turned(ProcessProfile(), A.values[1])] = VISITS[B.turned(BOTH, ())]
    assert proved(only, alone, starts, {}, lambda _: True) == {A}
    assert starts.starts == 3 * 2
    (proof,) = worth_setting(only, alone, Starts({"NCCL_A": 0.8}), {}, lambda _: True).values()
    assert math.isclose(proof.gain, 1.25)
    assert math.isclose(proof.low, 1.25), "starts do not differ"
    assert proof.starts == 3


def test_chance_seldom_proves_what_has_no_effect_and_seldom_hides_what_has_one() -> None:
    without = {A: VISITS[A.turned(BOTH, ())]}
    shown = {
        effect: sum(
            bool(proved(VISITS[BOTH], without, starts, {}, lambda _: True))
            for starts in (Starts({"NCCL_A": effect}, 0.005, seed) for seed in range(200))
        )
        for effect in (1.0, 0.97)
    }
    assert shown[1.0] <= 200 * 0.05 + 3 * math.sqrt(200 * 0.05 * 0.95)
    assert shown[0.97] > 180


def test_what_fails_or_is_not_paid_for_proves_nothing() -> None:
    without = {A: VISITS[A.turned(BOTH, ())]}

    def failing(task: Task, config: Config, number: int) -> tuple[float, ...]:
        if ("NCCL_A", "1") in config.settings and task is TASKS[1]:
            raise ConfigurationFailedError("it hung")
        return (1.0,) * number

    assert not proved(VISITS[BOTH], without, failing, {}, lambda _: True)
    rounds = count()
    starts = Starts({"NCCL_A": 0.5})
    assert not proved(VISITS[BOTH], without, starts, {}, lambda _: next(rounds) < 2)


def test_keys_count_by_their_weight() -> None:
    def uneven(task: Task, config: Config, number: int) -> tuple[float, ...]:
        factor = 0.9 if task is TASKS[0] else 1.05
        return (factor if ("NCCL_A", "1") in config.settings else 1.0,) * number

    without = {A: VISITS[A.turned(BOTH, ())]}
    assert proved(VISITS[BOTH], without, uneven, {}, lambda _: True) == {A}
    heavy = {TASKS[0]: 1.0, TASKS[1]: 3.0}
    assert not proved(VISITS[BOTH], without, uneven, heavy, lambda _: True)
