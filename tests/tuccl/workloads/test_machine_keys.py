"""The keys of a workload on a machine, and the calls that it leaves out."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.tuccl.workloads.made_workloads import call, workload
from tuccl.search.trials.config import Task
from tuccl.search.trials.shapes import NamedShape, ShapeName, shapes_dividing
from tuccl.workloads.machine_keys import MOST_SIZES, Offer, grouped_sizes, step_calls
from tuccl.workloads.step_calls import StepCalls, Why
from tuccl.workloads.workload import NotTuned, SourceKind, WorkloadCall, WorkloadSource

ALL_REDUCE, ALL_GATHER, ALLTOALL = Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.ALLTOALL
WHOLE, NODE, RAIL = Shape(16, 2, 8), Shape(8, 1, 8), Shape(2, 2, 1)
SHAPES = (
    NamedShape(ShapeName.WHOLE, WHOLE),
    NamedShape(ShapeName.NODE, NODE),
    NamedShape(ShapeName.RAIL, RAIL),
)


def refusal(operation: Collective, shape: Shape) -> str | None:
    return "no schedules here" if operation is ALLTOALL and shape == WHOLE else None


def found(*calls: WorkloadCall, not_tuned: tuple[NotTuned, ...] = ()) -> StepCalls:
    return step_calls(workload(*calls, not_tuned=not_tuned), Offer(SHAPES, refusal))


def tasks(calls: StepCalls) -> list[Task]:
    return [key.task for key in calls.keys]


def test_calls_belong_to_the_communicators_with_their_ranks_and_nodes() -> None:
    sizes = {WHOLE: 1 << 20, NODE: 1 << 12, RAIL: 1 << 25}
    calls = [call(ALL_REDUCE, sizes[s], 2.0, s.ranks, s.nodes) for s in (RAIL, WHOLE, NODE)]
    made = found(*calls)
    assert tasks(made) == [Task(ALL_REDUCE, size, shape) for shape, size in sizes.items()]
    assert made.left_out == ()
    assert made.calls_per_step == 6.0
    assert made.sizes_of(ALL_REDUCE, NODE) == (1 << 12,)
    assert made.sizes_of(ALL_GATHER, NODE) == ()


def test_unknown_nodes_are_those_of_the_communicator_with_as_many_ranks() -> None:
    calls = [call(ALL_REDUCE, 4096, 1.0, ranks, None) for ranks in (2, 8, 16)]
    assert [task.shape for task in tasks(found(*calls))] == [WHOLE, NODE, RAIL]
    pairs = NamedShape(ShapeName.PAIRS, Shape(2, 1, 2))
    both = step_calls(workload(calls[0]), Offer((*SHAPES, pairs), refusal))
    assert [task.shape for task in tasks(both)] == [pairs.shape], "inside a node"
    of_four = call(ALL_REDUCE, 4096, 1.0, 4, None)
    assert step_calls(workload(of_four), Offer(shapes_dividing(WHOLE), refusal)).keys == ()


def test_communicators_that_have_no_word_are_tuned_too() -> None:
    calls = [call(ALL_REDUCE, 4096, 1.0, ranks, nodes) for ranks, nodes in ((4, 1), (8, 2), (6, 2))]
    made = step_calls(workload(*calls), Offer(shapes_dividing(WHOLE), refusal))
    assert [task.shape for task in tasks(made)] == [Shape(4, 1, 4), Shape(8, 2, 4)]
    (left_out,) = made.left_out
    assert left_out.calls == "all_reduce of 6 ranks on 2 node(s)"
    assert left_out.reason == (
        "the communicators here are 16x2, 8x1, 2x2, 2x1, 4x1, 4x2, 8x2 (ranks x nodes)"
    )
    many = step_calls(workload(calls[2]), Offer(shapes_dividing(Shape(64, 8, 8)), refusal))
    assert many.left_out[0].reason == (
        "the communicators here are 64x8, 8x1, 8x8, 2x1, 4x1, 2x2, 4x2, 8x2 and 7 more "
        "(ranks x nodes)"
    )


def test_calls_without_a_shape_or_a_tuner_are_left_out_with_the_reason() -> None:
    made = found(
        call(ALL_REDUCE, 1000, 1.0, 16, 2),
        call(ALL_REDUCE, 2000, 1.0, 3, 1),
        call(ALL_REDUCE, 4000, 0.5, 3, 1),
        call(ALL_REDUCE, 500, 1.0, 16, 4),
        call(ALLTOALL, 1000, 1.0, 16, 2),
        not_tuned=(NotTuned(operation="send", calls_per_step=4.0, bytes_per_step=2500.0),),
    )
    assert tasks(made) == [Task(ALL_REDUCE, 1000, WHOLE)]
    assert [(each.calls, each.why, each.calls_per_step) for each in made.left_out] == [
        ("all_reduce of 3 ranks on 1 node(s)", Why.COMMUNICATOR, 1.5),
        ("send", Why.OPERATION, 4.0),
        ("alltoall of 16 ranks on 2 node(s)", Why.OPERATION, 1.0),
        ("all_reduce of 16 ranks on 4 node(s)", Why.COMMUNICATOR, 1.0),
    ]
    assert made.left_out[2].reason == "no schedules here"
    assert made.left_out[0].reason == "the communicators here are 16x2, 8x1, 2x2 (ranks x nodes)"
    assert made.bytes_per_step == 9000.0
    assert made.untuned_share == pytest.approx(3500 / 9000)
    assert made.left_out_share == pytest.approx(4500 / 9000)


def test_calls_of_one_size_are_one_key_whatever_their_buffers() -> None:
    calls = [call(ALL_REDUCE, 4096, 2.0, 8, 1, in_place=each) for each in (True, False)]
    (key,) = found(*calls).keys
    assert (key.calls_per_step, key.bytes_per_step) == (4.0, 4 * 4096)


def test_sizes_without_whole_elements_for_each_rank_are_timed_at_the_next_that_has_them() -> None:
    made = found(call(ALL_GATHER, 17, 1.0, 8, 1), call(ALL_REDUCE, 1, 1.0, 8, 1))
    assert tasks(made) == [Task(ALL_GATHER, 32, NODE), Task(ALL_REDUCE, 2, NODE)]
    assert [key.sizes[0].size_bytes for key in made.keys] == [17, 1]


def test_hundreds_of_sizes_share_keys_where_they_move_most_bytes() -> None:
    sizes = [4 * round(1000 * 1.03**number) for number in range(300)]
    calls = [call(ALL_REDUCE, size, 1.0, 8, 1) for size in sizes]
    heavy = call(ALL_REDUCE, sizes[150], 50.0, 8, 1)
    made = found(*calls, heavy)
    assert len(made.keys) == MOST_SIZES
    assert made.calls_per_step == 350.0
    assert [each.size_bytes for key in made.keys for each in key.sizes] == sizes
    assert sizes[150] in {task.size_bytes for task in tasks(made)}
    spans = [key.sizes[-1].size_bytes / key.sizes[0].size_bytes for key in made.keys]
    assert max(spans) < 3.0, "no group takes all the others"
    for key in made.keys:
        low, high = key.reach_bytes
        assert low <= key.sizes[0].size_bytes
        assert high >= key.sizes[-1].size_bytes


@pytest.mark.parametrize(
    ("sizes", "most", "groups"),
    [
        ([1, 2, 64], 3, [[1], [2], [64]]),
        ([1, 2, 64], 2, [[1, 2], [64]]),
        ([8, 9, 100, 110, 120, 4000], 3, [[8, 9], [100, 110, 120], [4000]]),
        ([1, 2, 4, 8], 2, [[1, 2], [4, 8]]),
    ],
)
def test_the_neighbours_that_span_least_become_one(
    sizes: Sequence[int], most: int, groups: list[list[int]]
) -> None:
    assert grouped_sizes(sizes, most) == groups


def test_a_record_gives_the_nearest_size_and_leaves_out_what_is_far() -> None:
    calls = [call(ALL_REDUCE, size, 1.0, 16, 2) for size in (1000, 5000, 1 << 20)]
    recorded = frozenset(Task(ALL_REDUCE, size, WHOLE) for size in (1024, 4096))
    made = step_calls(
        workload(*calls, call(ALL_GATHER, 1024, 1.0, 16, 2)), Offer(SHAPES, refusal, recorded)
    )
    assert tasks(made) == [Task(ALL_REDUCE, 1024, WHOLE), Task(ALL_REDUCE, 4096, WHOLE)]
    assert [key.sizes[0].size_bytes for key in made.keys] == [1000, 5000]
    assert [(each.calls, each.why) for each in made.left_out] == [
        ("all_reduce of 1M", Why.SIZE),
        ("all_gather of 1K", Why.SIZE),
    ]


def test_the_digest_follows_the_workload() -> None:
    made = [found(call(ALL_REDUCE, 4096, calls, 8, 1)).digest for calls in (1.0, 1.0, 2.0)]
    assert made[0] == made[1] != made[2]


def test_the_digest_is_of_the_calls_whatever_recording_has_them() -> None:
    first = workload(call(ALL_REDUCE, 4096, 1.0, 8, 1))
    source = WorkloadSource(SourceKind.KINETO, ("later.json",), ("a call that was cut",))
    timed = tuple(replace(each, us_per_call=12.0) for each in first.calls)
    again = replace(first, source=source, calls=timed)
    offer = Offer(SHAPES, refusal)
    assert step_calls(again, offer).digest == step_calls(first, offer).digest
    hidden = [
        replace(first, calls=tuple(replace(each, exposed_us_per_call=us) for each in first.calls))
        for us in (1.0, 2.0)
    ]
    digests = {step_calls(each, offer).digest for each in (first, *hidden)}
    assert len(digests) == 2
