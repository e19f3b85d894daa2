"""Calls that are slower where ranks sit elsewhere are no entries."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from statistics import median

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.sketches.machines import hybrid_mesh
from tuccl.errors import ConfigurationFailedError
from tuccl.models.placements import placements
from tuccl.search.statistics.estimators import paired_ratios
from tuccl.search.statistics.intervals import pairs_interval
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.search.trials.placement import Placement
from tuccl.tuning.placing.safety import PAIRS, SlowerAt, seconds, slower_at, worst

SHAPE = Shape(2, 1, 2)
CLASSES = placements(hybrid_mesh(), SHAPE)
TASK = Task(Collective.ALL_REDUCE, 1 << 20, SHAPE)
FAST, SLOW, ABSENT = Config("ring", "LL", 1), Config("tree", "LL", 2), Config("nvls", "Simple")
SPREAD = (1.0, 1.004, 0.997, 1.002, 0.999)


class Machine:
    """Two of the calls gain 20 % on the first class; on the second one they differ."""

    def __init__(self, elsewhere: dict[Config, float]) -> None:
        self.elsewhere = {STOCK: 1.0} | elsewhere
        self.taken: Counter[tuple[Placement, Config]] = Counter()

    def fresh(self, task: Task, config: Config, count: int) -> list[float]:
        is_first = task.placement == CLASSES[0].placement
        if config == ABSENT and not is_first:
            raise ConfigurationFailedError("it does not run here")
        self.taken[task.placement, config] += count
        number = self.taken[task.placement, config]
        factor = (1.0 if config == STOCK else 0.8) if is_first else self.elsewhere[config]
        return [20.0 * factor * SPREAD[(number + len(config.algorithm)) % len(SPREAD)]]


def test_a_call_that_loses_in_a_class_is_named_with_the_class() -> None:
    machine = Machine({FAST: 0.9, SLOW: 1.25})
    found = slower_at(TASK, [FAST, SLOW], STOCK, CLASSES, machine.fresh)
    assert found[FAST] == ()
    (slower,) = found[SLOW]
    assert slower.ratio == pytest.approx(0.8, rel=0.01)
    assert slower.own == CLASSES[1]
    assert slower.sentence.startswith(
        "tree LL ch2 is left out: slower on communicators such as that of n0/gpu2 and n0/gpu3 (0.8"
    )
    assert {placement for placement, _ in machine.taken} == {own.placement for own in CLASSES}
    enough = PAIRS // 2 + 1
    first, second = (own.placement for own in CLASSES[:2])
    taken = {(own, call): machine.taken[own, call] for own in (first, second) for call in found}
    assert taken == {
        (first, FAST): enough, (first, SLOW): enough, (second, FAST): enough, (second, SLOW): PAIRS,
    }, "a call that was as fast in most turns is safe already"  # fmt: skip
    assert [machine.taken[own, STOCK] for own in (first, second)] == [enough, PAIRS]


class Recorded:
    """The same recorded times in every class."""

    def __init__(self, times_us: dict[Config, list[float]]) -> None:
        self.times_us = times_us
        self.taken: Counter[tuple[Placement, Config]] = Counter()

    def fresh(self, task: Task, config: Config, count: int) -> list[float]:
        at = self.taken[task.placement, config]
        self.taken[task.placement, config] += count
        return self.times_us[config][at : at + count]


def test_turns_that_are_spared_would_not_have_changed_the_decision() -> None:
    rng = random.Random(1)
    spared = left_out = safe = 0
    for ratio in (0.985, 0.995, 1.0, 1.005) * 50:
        stock_us = [rng.gauss(20.0, 0.2) for _ in range(PAIRS)]
        own_us = [rng.gauss(20.0, 0.2) / ratio for _ in range(PAIRS)]
        machine = Recorded({STOCK: stock_us, FAST: own_us})
        found = slower_at(TASK, [FAST], STOCK, CLASSES, machine.fresh)[FAST]
        ratios = paired_ratios(own_us, stock_us)
        is_slower = median(ratios) < 0.99 or (
            median(ratios) < 1.0 and pairs_interval(ratios, 0.01)[1].high < 1.0
        )
        assert bool(found) == is_slower
        assert all(slower.ratio == median(ratios) for slower in found), "of all turns"
        spared += machine.taken[CLASSES[0].placement, FAST] < PAIRS
        left_out += is_slower
        safe += not is_slower
    assert min(spared, left_out, safe) > 40


def test_a_call_that_does_not_run_in_a_class_is_left_out() -> None:
    found = slower_at(TASK, [ABSENT], STOCK, CLASSES, Machine({}).fresh)
    (slower,) = found[ABSENT]
    assert slower.ratio is None
    assert "cannot be timed on communicators" in slower.sentence


def test_the_worst_class_is_told() -> None:
    lost = [SlowerAt(SLOW, CLASSES[0], 0.9), SlowerAt(SLOW, CLASSES[1], 0.7)]
    assert worst(lost) == lost[1]
    refused = SlowerAt(SLOW, CLASSES[0], None)
    assert worst([*lost, refused]) == refused
    assert worst(()) is None


def test_noise_is_no_loss_and_a_loss_of_a_per_cent_is() -> None:
    same, loss = replace(FAST, nchannels=2), replace(FAST, nchannels=4)
    machine = Machine({same: 1.0005, loss: 1.015})
    found = slower_at(TASK, [same, loss], STOCK, CLASSES, machine.fresh)
    assert [config for config, slower in found.items() if slower] == [loss]


def test_where_all_communicators_are_alike_nothing_is_timed() -> None:
    machine = Machine({})
    assert slower_at(TASK, [FAST], STOCK, CLASSES[:1], machine.fresh) == {FAST: ()}
    assert not machine.taken
    assert seconds({TASK: 1.0}, lambda _: CLASSES[:1]) == 0.0
    assert seconds({TASK: 1.0}, lambda _: CLASSES) == 2 * PAIRS
