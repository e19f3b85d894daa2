"""What a process profile does on communicators that a run does not tune."""

from collections.abc import Sequence

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.tuning.guaranteed_minimum import Floor
from tuccl.tuning.untuned_shapes import UntunedShapes, part_of_process, tasks_beside

WHOLE, PAIR = Shape(4, 1, 4), Shape(2, 1, 2)
MB = 1 << 20
CHANNELS = ProcessProfile(min_nchannels=32)
THREADS = ProcessProfile(nthreads=128)
BOTH = ProcessProfile(nthreads=128, min_nchannels=32)


def key(operation: Collective, size_bytes: int, shape: Shape = WHOLE) -> Task:
    return Task(operation, size_bytes, shape)


def test_the_least_the_middle_and_the_largest_size_of_each_operation_are_timed() -> None:
    sizes = (1024, 4096, 16384, 1 * MB, 256 * MB)
    tuned = [key(Collective.ALL_REDUCE, size) for size in sizes]
    tuned.append(key(Collective.ALL_GATHER, 2 * MB))
    assert tasks_beside(tuned, WHOLE) == (
        key(Collective.ALL_GATHER, 2 * MB, PAIR),
        *(key(Collective.ALL_REDUCE, size, PAIR) for size in (1024, 16384, 1 * MB)),
    )


@pytest.mark.parametrize(
    ("whole", "tuned", "beside"),
    [
        (WHOLE, [WHOLE, PAIR], []),
        (Shape(2, 1, 2), [PAIR], []),
        (Shape(6, 1, 6), [Shape(6, 1, 6)], [PAIR, Shape(3, 1, 3)]),
        # Whole, node, rail and pairs, and half of a node's ranks.
        (
            Shape(16, 2, 8),
            [Shape(16, 2, 8)],
            [PAIR, Shape(2, 2, 1), Shape(4, 1, 4), Shape(8, 1, 8)],
        ),
        (Shape(5, 2, 0), [Shape(5, 2, 0)], []),
    ],
)
def test_all_shapes_that_jobs_may_have_are_timed(
    whole: Shape, tuned: list[Shape], beside: list[Shape]
) -> None:
    keys = [key(Collective.ALL_REDUCE, MB, shape) for shape in tuned]
    assert [task.shape for task in tasks_beside(keys, whole)] == beside


def test_what_the_executor_sets_reaches_no_other_communicators() -> None:
    assert part_of_process(BOTH, executor=True) == THREADS
    assert part_of_process(BOTH, executor=False) == BOTH
    assert part_of_process(CHANNELS, executor=True) == STOCK.profile
    # Before NCCL 2.28 this is a variable of the process alone.
    peers = ProcessProfile(settings=(("NCCL_NCHANNELS_PER_NET_PEER", "4"),))
    assert part_of_process(peers, executor=True) == peers


class Pairs:
    """Pairs, which take so much longer under few threads."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.profiles: list[ProcessProfile] = []

    def __call__(self, task: Task, config: Config, count: int) -> Sequence[float]:
        assert task.shape == PAIR
        if not self.profiles or config.profile != self.profiles[-1]:
            self.profiles.append(config.profile)
        return (10.0 * (self.factor if config.nthreads else 1.0),) * count


TASKS = (key(Collective.ALL_REDUCE, 1024, PAIR), key(Collective.ALL_REDUCE, MB, PAIR))


def untuned(pairs: Pairs, *, affords: bool = True, executor: bool = True) -> UntunedShapes:
    return UntunedShapes(TASKS, Floor(0.99, pairs), executor, lambda _: affords)


@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (1.005, True), (1.02, False)])
def test_a_profile_is_held_to_the_floor_where_nothing_is_tuned(factor: float, holds: bool) -> None:
    pairs = Pairs(factor)
    found = untuned(pairs).verdict(THREADS)
    assert found is not None
    assert found.holds is holds
    assert [own.task for own in found.own_choice] == list(TASKS)
    assert found.own_choice[0].ratio == pytest.approx(1.0 / factor)
    assert pairs.profiles == [STOCK.profile, THREADS] * found.starts
    assert found.starts == 3


def test_profiles_with_the_same_variables_of_processes_are_timed_once() -> None:
    pairs = Pairs(1.0)
    own = untuned(pairs)
    assert own.verdict(THREADS) == own.verdict(BOTH)
    assert pairs.profiles == [STOCK.profile, THREADS] * 3
    assert not own.needs_starts(CHANNELS)
    assert untuned(pairs, executor=False).needs_starts(CHANNELS)


def test_without_tasks_a_floor_or_seconds_nothing_is_timed() -> None:
    pairs = Pairs(2.0)
    assert untuned(pairs, affords=False).verdict(THREADS) is None
    assert not UntunedShapes((), Floor(0.99, pairs), True, lambda _: True).needs_starts(THREADS)
    assert not UntunedShapes(TASKS, None, True, lambda _: True).needs_starts(THREADS)
    assert pairs.profiles == []
