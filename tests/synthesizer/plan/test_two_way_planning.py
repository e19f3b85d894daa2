"""All_reduce over two-way trees: timetables by hand, and what they gain on uneven machines."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import time_bound
from synthesizer.ir.msccl_limits import check_limits
from synthesizer.lower.lowering import lower
from synthesizer.plan.composition import TimedTrees, two_way_program
from synthesizer.plan.list_schedule import Timetable
from synthesizer.plan.port_queues import Urgency, queued_two_ways
from synthesizer.plan.synthesize import (
    SynthesisOptions,
    finer_halves,
    request_of,
    synthesize,
)
from synthesizer.plan.timetabling import rehearsed_two_ways
from synthesizer.plan.tree_planning import make_plan
from synthesizer.plan.two_way_planning import joined_trees
from synthesizer.prove.verifier import verify
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule
from synthesizer.solve.routes import RouteTree, resources
from synthesizer.solve.two_way_packing import TwoWayPacking
from synthesizer.solve.two_way_trees import TwoWayTree
from tests.synthesizer.emulator import expected_outputs, run
from tests.synthesizer.hand_sketches import direct, hybrid_cube_mesh, less_a_link, switched
from tests.synthesizer.solve.test_two_way_packing import with_a_slow_rank

pytestmark = pytest.mark.long

CHUNK_BYTES = 100_000
"""Takes 1 us at 100 GB/s."""

CHAIN = direct(3, {(0, 1): 100.0, (1, 2): 100.0}, alpha_us=1.0)
TO_THE_MIDDLE = TwoWayTree(1, ((0, 1), (2, 1)), ((1, 0), (1, 2)))
TO_THE_END = TwoWayTree(2, ((0, 1), (1, 2)), ((2, 1), (1, 0)))


def test_a_root_spreads_the_sum_when_its_branches_have_arrived() -> None:
    costs = resources(CHAIN, CHUNK_BYTES)
    timed = queued_two_ways([TO_THE_MIDDLE], costs, Urgency.LONGEST_PATH)
    starts = {(hop.tree, hop.hop): hop.start_us for hop in timed.transfers}
    assert starts == {(0, (0, 1)): 0, (0, (2, 1)): 0, (1, (1, 0)): 2, (1, (1, 2)): 2}
    assert rehearsed_two_ways(timed, CHUNK_BYTES, CHAIN) == pytest.approx((4.0, 4.0))


def test_results_of_the_first_chunks_go_before_sums_of_the_last_or_after_them() -> None:
    trees = [TO_THE_MIDDLE] * 2 + [TO_THE_END] * 6
    costs = resources(CHAIN, CHUNK_BYTES)

    def last_to_2(urgency: Urgency) -> int:
        timed = queued_two_ways(trees, costs, urgency)
        *_, last = (timed.chunk(hop) for hop in timed.transfers if hop.hop == (1, 2))
        return last

    assert last_to_2(Urgency.CHUNK_BY_CHUNK) == len(trees) - 1
    assert last_to_2(Urgency.LONGEST_PATH) < 2


@pytest.mark.parametrize("urgency", Urgency)
@pytest.mark.parametrize(
    "sketch", [less_a_link(hybrid_cube_mesh()), with_a_slow_rank(switched(2, 3), 150.0)]
)
def test_a_rehearsal_predicts_the_lowered_schedule(sketch: Sketch, urgency: Urgency) -> None:
    size_bytes, chunks = 10**8, 8 * sketch.ranks
    trees = TwoWayPacking(sketch, size_bytes).trees(chunks, 10.0)
    timed = queued_two_ways(trees, resources(sketch, size_bytes / chunks), urgency)
    predicted = rehearsed_two_ways(timed, size_bytes / chunks, sketch)
    algorithm = lower(two_way_program(sketch.ranks, timed), "two_way")
    assert verify(algorithm, slots=1).describe() == "proved"
    times = compile_schedule(algorithm, sketch).times(size_bytes, ExecutionModel())
    # Lowering fuses some receives with sends, which the rehearsal runs separately.
    assert tuple(times) == pytest.approx(tuple(predicted), rel=0.03)


@pytest.mark.parametrize(
    ("sketch", "share"),
    [
        # Equal shares reach 0.67 and 0.72 of these bounds.
        (with_a_slow_rank(switched(1, 4), 150.0), 0.9),
        pytest.param(less_a_link(hybrid_cube_mesh()), 0.9, marks=pytest.mark.slow),
    ],
    ids=["switch", "cube_mesh"],
)
def test_uneven_machines_come_near_the_bound(sketch: Sketch, share: float) -> None:
    size_bytes = 10**9
    result = synthesize(Collective.ALL_REDUCE, sketch, size_bytes)
    algorithm = result.algorithm
    times = compile_schedule(algorithm, sketch).times(size_bytes, ExecutionModel())
    bound_us = time_bound(Collective.ALL_REDUCE, sketch).time_us(size_bytes)
    assert bound_us / times.worse_us >= share
    assert times.in_turn_us == pytest.approx(times.fair_us, rel=0.1)
    assert result.routing_bound_us <= result.timetable_us
    assert 0 <= result.solver_gap < 0.05
    assert verify(algorithm, slots=1).describe() == "proved"
    assert not check_limits(algorithm)
    inputs = [
        np.arange(algorithm.chunks_per_loop, dtype=np.int64) * 7 + 1000 * rank
        for rank in range(algorithm.ranks)
    ]
    outputs = run(algorithm, inputs, slots=1, seed=5)
    for got, wanted in zip(outputs, expected_outputs(algorithm.collective, inputs), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_halves_are_joined_at_their_sources_piece_after_piece() -> None:
    none = Timetable((), 0.0)
    scatter, gather = (
        TimedTrees([RouteTree(0, ((0, 1), (1, 2))), RouteTree(1, hops)], 1, 2, none)
        for hops in (((1, 0), (0, 2)), ((1, 0), (1, 2)))
    )
    first = TwoWayTree(0, ((2, 1), (1, 0)), ((0, 1), (1, 2)))
    second = TwoWayTree(1, ((2, 0), (0, 1)), ((1, 0), (1, 2)))
    assert joined_trees(scatter, gather) == (first, second) * 2


def test_a_slow_rank_sums_up_less_where_latencies_count() -> None:
    """Equal shares and trees of a packing take 8.62 us."""
    sketch = with_a_slow_rank(switched(2, 4, nic_gb_per_s=100.0), 220.0)
    result = synthesize(Collective.ALL_REDUCE, sketch, 10**6)
    times = compile_schedule(result.algorithm, sketch).times(10**6, ExecutionModel())
    assert times.worse_us < 8.1
    assert times.worse_us == pytest.approx(result.timetable_us, rel=0.01)
    # Eight ranks have six chunks each, but for four chunks of the slow rank.
    assert result.algorithm.chunks_per_loop == 44


def test_chunks_are_those_asked_for() -> None:
    sketch = with_a_slow_rank(switched(1, 4), 150.0)
    for options in (
        SynthesisOptions(counts=(8,)),
        SynthesisOptions(trees_per_rank=2, pieces_per_tree=4),
    ):
        result = synthesize(Collective.ALL_REDUCE, sketch, 10**9, options)
        assert result.algorithm.chunks_per_loop == 4 * 8


def test_even_machines_keep_reduce_scatter_and_all_gather() -> None:
    sketch = replace(switched(1, 4), symmetries=())
    result = synthesize(Collective.ALL_REDUCE, sketch, 10**9)
    assert result.algorithm.channels == 2
    small = synthesize(Collective.ALL_REDUCE, with_a_slow_rank(sketch, 150.0), 1024)
    assert small.algorithm.channels == 2


def test_of_plans_that_take_the_same_time_the_one_with_fewer_chunks_is_kept() -> None:
    """A step costs a rank time that a plan does not count."""
    speeds = dict.fromkeys(combinations(range(4), 2), 50.0)
    result = synthesize(Collective.ALL_REDUCE, direct(4, speeds), 1 << 20)
    assert result.algorithm.chunks_per_loop == 8


@pytest.mark.parametrize(("most", "before", "after"), [(56, 1, 2), (112, 2, 4)])
def test_halves_that_their_transfers_keep_from_the_bound_have_twice_as_many(
    most: int, before: int, after: int
) -> None:
    """A block of 125 MB takes 5,000 us over a NIC, and 1,250 on to three neighbours.

    Each piece goes on as soon as it is there, so the last one is a piece's share of these late.
    """
    sketch = switched(2, 4)

    def planned(asked: int) -> tuple[int, int, float, float]:
        one = SynthesisOptions(trees_per_rank=1, pieces_per_tree=asked)
        gathering = request_of(Collective.ALL_GATHER, sketch, 10**9, one, max_transfers=most)
        scattering = request_of(Collective.REDUCE_SCATTER, sketch, 10**9, one)
        gather = make_plan(gathering)
        scattering = replace(scattering, pieces=gather.timed.pieces)
        halves = finer_halves(gathering, gather, scattering, make_plan(scattering))
        assert halves[0].timed.pieces == halves[1].timed.pieces
        return gather.timed.pieces, halves[0].timed.pieces, halves[0].end_us, halves[1].end_us

    latest_us = 5000 + 1250 / after + 1.7 + 0.7
    *pieces, gather_us, scatter_us = planned(0)
    assert pieces == [before, after]
    assert (gather_us, scatter_us) == pytest.approx((latest_us, latest_us))
    # Whoever asks for a number of pieces gets that.
    assert planned(before)[:2] == (before, before)
