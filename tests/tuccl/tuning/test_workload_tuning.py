"""Keys of a workload count by the time that stock NCCL takes for their calls."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lookup_tables.collective import Collective
from tests.tuccl.tuning.test_tune import (
    FAMILIES,
    NODE,
    SETTINGS,
    SHAPE,
    SHAPES,
    SIZES,
    SPACES,
    Machine,
    Opposed,
    OtherOnNodes,
    tuned,
)
from tuccl.search.strategies.strategy import SearchResult, run_search
from tuccl.search.trials.config import Config, ProcessProfile, Task
from tuccl.search.trials.space import Space
from tuccl.tuning import searches
from tuccl.tuning.breakpoints import Borders
from tuccl.tuning.run_keys import (
    key_weights,
    keys_of,
    nearest_neighbour,
    representative,
    seed_of,
)
from tuccl.tuning.settings import RunSettings, describe_keys
from tuccl.workloads.step_calls import KeyCalls, SizeCalls, StepCalls

ALL_REDUCE, ALL_GATHER = Collective.ALL_REDUCE, Collective.ALL_GATHER


def settings(*calls: tuple[Task, float]) -> RunSettings:
    """Settings of a run for these keys, each with so many calls a step."""
    keys = [KeyCalls(task, (SizeCalls(task.size_bytes, count),)) for task, count in calls]
    operations = tuple(sorted({task.operation for task, _ in calls}))
    shapes = {task.shape for task, _ in calls}
    return replace(
        SETTINGS,
        operations=operations,
        shapes=() if shapes == {SHAPE} else SHAPES,
        workload=StepCalls(tuple(keys), (), "digest", 1.0),
    )


@pytest.mark.parametrize(("gathers", "nthreads"), [(1.0, 0), (50.0, 256)])
def test_the_calls_that_take_most_of_a_step_decide_the_profile(
    tmp_path: Path, gathers: float, nthreads: int
) -> None:
    calls = settings(
        (Task(ALL_GATHER, 1 << 14, SHAPE), gathers), (Task(ALL_REDUCE, 1 << 14, SHAPE), 5.0)
    )
    result = tuned(tmp_path, Opposed(), replace(calls, floor=None))
    assert result.profile == ProcessProfile(nthreads=nthreads)


def test_they_are_searched_first_and_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[int] = []

    def search(*args: Any, seed: int, **options: Any) -> SearchResult:
        searched.append(seed)
        return run_search(*args, seed=seed, **options)

    monkeypatch.setattr(searches, "run_search", search)
    spaces = replace(SPACES, builtins=lambda _: Space("test", (FAMILIES[1],)))
    tasks = [Task(ALL_REDUCE, size, shape) for shape in (SHAPE, NODE) for size in SIZES]
    calls = dict(zip(tasks, (1.0, 1.5, 2.0, 20.0, 21.0, 22.0), strict=True))
    given = replace(settings(*calls.items()), budget_s=7.0)
    result = tuned(tmp_path, OtherOnNodes(), given, spaces)
    assert [key.task for key in result.keys] == tasks, "the table keeps its order"
    assert searched == [seed_of(given, "one profile", task) for task in reversed(tasks)]
    samples = [sum(found.repeats_measured for found in key.searches) for key in result.keys]
    assert sum(samples[3:]) > 1.5 * sum(samples[:3])


def test_weights_are_times_of_a_step_and_no_key_weighs_nothing() -> None:
    small, large, rare = (Task(ALL_REDUCE, size, SHAPE) for size in (1024, 65536, 1 << 20))
    given = settings((small, 100.0), (large, 10.0), (rare, 1e-6))
    assert keys_of(given, SHAPE) == [small, large, rare]
    weights = key_weights(given, keys_of(given, SHAPE), {small: 10.0, large: 40.0, rare: 100.0})
    assert weights.of_profile == pytest.approx({small: 1000.0, large: 400.0, rare: 1.0})
    assert weights.of_budget == weights.of_profile
    assert weights.in_order([rare, large, small]) == [small, large, rare]
    assert weights.of_all([small, rare]) == pytest.approx(1001.0)
    some = key_weights(given, [small, large], {small: 10.0, large: 40.0})
    assert some.of_budget == pytest.approx({small: 1000.0, large: 400.0}), "rare is kept as it was"
    plain = key_weights(SETTINGS, keys_of(SETTINGS, SHAPE), {})
    assert plain.in_order(keys_of(SETTINGS, SHAPE)) == keys_of(SETTINGS, SHAPE)


def test_the_heaviest_keys_decide_the_profile_where_there_are_many() -> None:
    tasks = [Task(ALL_REDUCE, 1024 + 64 * number, SHAPE) for number in range(50)]
    given = settings(*((task, float(number)) for number, task in enumerate(tasks, 1)))
    weights = key_weights(given, tasks, dict.fromkeys(tasks, 10.0))
    assert representative(tasks, weights) == tasks[14:]


def test_a_search_begins_with_the_nearest_size_that_was_searched() -> None:
    tasks = [Task(ALL_REDUCE, size, SHAPE) for size in (1024, 4096, 6000)]
    far = [Task(ALL_GATHER, 4096, SHAPE), Task(ALL_REDUCE, 4096, NODE)]
    assert nearest_neighbour(tasks[1], [*tasks, *far]) == tasks[2]
    assert nearest_neighbour(tasks[0], [*tasks, *far]) == tasks[1]
    assert nearest_neighbour(far[0], tasks) is None


def test_an_entry_reaches_no_further_than_half_a_usual_step_beyond_its_sizes(
    tmp_path: Path,
) -> None:
    tasks = [Task(ALL_REDUCE, size, SHAPE) for size in (1 << 10, 1 << 18)]
    result = tuned(tmp_path, Machine(), settings(*((task, 1.0) for task in tasks)))
    assert [key.range_bytes for key in result.keys] == [(512, 2048), (1 << 17, 1 << 19)]


def test_between_near_sizes_the_border_is_measured_within_both_reaches() -> None:
    small, large = (Task(ALL_REDUCE, size, SHAPE) for size in (4096, 12288))
    calls = {small: Config("ring", "LL", 4), large: Config("ring", "Simple", 8)}
    reach = {small: (2048, 8192), large: (6144, 24576)}

    def ranges(faster: Task) -> list[tuple[int, int]]:
        def fresh(_: Task, config: Config, count: int) -> tuple[float, ...]:
            return ((1.0 if config == calls[faster] else 2.0),) * count

        found = Borders(fresh, reach).ranges(calls)
        return [found[small], found[large]]

    (first, low_end), (high_start, last) = ranges(small)
    assert (first, low_end, last) == (2048, 8192, 24576), "its reach ends before the border"
    assert 8192 < high_start < 12288
    (_, low_end), (high_start, _) = ranges(large)
    assert 4096 <= low_end < 6144
    assert high_start == 6144


def test_sizes_are_those_of_each_operation_and_shape() -> None:
    whole, node = Task(ALL_REDUCE, 1024, SHAPE), Task(ALL_GATHER, 4096, NODE)
    given = settings((whole, 1.0), (node, 1.0))
    assert given.sizes_of(ALL_REDUCE, SHAPE) == (1024,)
    assert given.sizes_of(ALL_REDUCE, NODE) == ()
    assert given.operations_of(NODE) == (ALL_GATHER,)
    assert describe_keys(given) == "all_gather, all_reduce; 2 keys of the workload"
    assert describe_keys(SETTINGS) == "all_reduce; 3 sizes, 1K to 256K"
