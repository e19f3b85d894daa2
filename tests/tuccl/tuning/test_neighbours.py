"""Winners of the sizes beside a key, by decisions whose figures are worked by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.tuccl.tuning.test_confirmation import RING, TASKS, TREE, UNDECIDED, compared
from tests.tuccl.tuning.test_tune import SETTINGS, SIZES, SPACES, UnlikeStarts, tuned
from tuccl.search.trials.backend import Measured
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.search.trials.space import Family, Space
from tuccl.tuning.decision import Decision
from tuccl.tuning.neighbours import faster_beside, joined

SCHEDULE = Config("schedule:0a", "LL", 4, 256, 1 << 20)
BELOW, HERE, ABOVE, FAR = TASKS[:4]
WEAK = Decision(compared(1.10, 1.05), None, 20.0, ())
"""A built-in of 1.1."""
STRONG = Decision(
    compared(1.10, 1.05), replace(compared(2.0, 1.9), config=SCHEDULE, reference=TREE), 20.0, ()
)
"""The same, and a schedule of 2.0 against NCCL's own choice."""


def test_a_weak_winner_does_not_end_the_question_where_a_neighbour_has_a_strong_one() -> None:
    assert faster_beside(HERE, {BELOW: STRONG, HERE: WEAK}) == [SCHEDULE]
    assert faster_beside(HERE, {HERE: WEAK, ABOVE: STRONG}) == [SCHEDULE]
    assert faster_beside(HERE, {BELOW: STRONG, HERE: UNDECIDED}) == [TREE, SCHEDULE]
    assert faster_beside(BELOW, {BELOW: STRONG, HERE: WEAK}) == []


def test_nothing_is_tried_of_a_distant_size_or_another_operation_or_shape() -> None:
    gather = Task(Collective.ALL_GATHER, HERE.size_bytes, HERE.shape)
    pair = Task(HERE.operation, HERE.size_bytes, Shape(2, 1, 2))
    for other in (FAR, gather, pair):
        decisions = {other: STRONG, HERE: WEAK, ABOVE: UNDECIDED}
        assert faster_beside(HERE, decisions) == []


def test_what_the_key_was_compared_with_is_not_tried_again() -> None:
    lost = replace(WEAK, rejected=(replace(compared(0.9, 0.7), config=SCHEDULE),))
    assert faster_beside(HERE, {BELOW: STRONG, HERE: lost}) == []


def test_a_winner_stays_unless_a_further_call_wins() -> None:
    lost = replace(compared(0.9, 0.7), config=SCHEDULE)
    own_by_luck = compared(1.01, 0.99)
    again = Decision(None, None, 20.0, (own_by_luck, lost))
    kept = joined(WEAK, again, [SCHEDULE])
    assert kept == replace(WEAK, rejected=(lost,))
    ring = replace(compared(0.8, 0.7), config=RING)
    own = replace(WEAK, rejected=(ring,))
    assert joined(own, STRONG, [SCHEDULE]) == replace(STRONG, rejected=(ring,))


class Schedules(UnlikeStarts):
    """A schedule that one size has in its space is twice as fast at all sizes but the last."""

    def __init__(self, spread: float) -> None:
        super().__init__()
        self.spread = spread

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        measured = super().measure(task, config, first, repeats)
        fast = config.is_schedule and task.size_bytes != SIZES[2]
        time_us = 10.0 if fast else 20.0
        samples = tuple(
            time_us * (1 + self.spread * (n % 3)) for n in range(first, first + repeats)
        )
        return replace(measured, samples_us=samples)


@pytest.mark.parametrize("spread", [0.001, 0.04], ids=["steady", "unsteady"])
@pytest.mark.parametrize("found_at", [0, 1])
def test_a_schedule_that_one_size_found_is_proved_at_the_sizes_beside_it(
    tmp_path: Path, found_at: int, spread: float
) -> None:
    """By its samples, or where these are too few for a proof, by further starts."""

    def schedules(task: Task) -> Space:
        families = (Family("schedule:a", "LL", (4,), (256,), (1 << 20,)),)
        return Space("executor", families if task.size_bytes == SIZES[found_at] else ())

    spaces = replace(SPACES, schedules=schedules, jobs_run_schedules=True)
    result = tuned(tmp_path, Schedules(spread), replace(SETTINGS, floor=None), spaces)
    won = [key.decision.schedule for key in result.keys]
    assert [each is not None for each in won] == [True, True, False]
    assert all(each is None or (each.starts > 1) == (spread > 0.01) for each in won)
    (lost,) = (c for c in result.keys[2].decision.rejected if c.config.is_schedule)
    assert lost.reference == STOCK
    assert lost.ratio == pytest.approx(1.0, rel=0.05)
