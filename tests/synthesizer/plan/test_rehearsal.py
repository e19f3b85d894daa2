"""Rehearsal: its prediction is the lowered schedule's simulated time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from sketches.symmetry import find_symmetries
from synthesizer.lower.lowering import lower
from synthesizer.plan.composition import TimedTrees, spread_program
from synthesizer.plan.list_schedule import Precedence, TimedHop, Timetable, list_schedule
from synthesizer.plan.synthesize import SynthesisOptions, synthesize
from synthesizer.plan.timetabling import rehearsed
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule
from synthesizer.solve.routes import RouteTree, resources, reversed_sketch
from tests.synthesizer.hand_sketches import direct, hybrid_cube_mesh, switched, torus

CHAIN = direct(3, {(0, 1): 100.0, (1, 2): 100.0}, alpha_us=1.0)


def test_pieces_follow_each_other_along_a_chain() -> None:
    tree = RouteTree(0, ((0, 1), (1, 2)))
    costs = resources(CHAIN, 100_000)
    timed = TimedTrees((tree,), 1, 3, list_schedule([tree], 3, costs))
    # Three pieces of 1 us each; the last leaves at 2, arrives at 4 and again 2 us later.
    times = rehearsed(timed, 100_000, CHAIN, backwards=False)
    assert times == pytest.approx((6.0, 6.0))


def test_a_connection_of_many_transfers_is_rehearsed_on_the_channels_that_it_gets() -> None:
    pieces, size_bytes = 500, 50_000_000
    tree = RouteTree(0, ((0, 1), (1, 2)))
    timetable = list_schedule([tree], pieces, resources(CHAIN, size_bytes / pieces))
    timed = TimedTrees((tree,), 1, pieces, timetable)
    rehearsal = rehearsed(timed, size_bytes / pieces, CHAIN, backwards=False)
    program = spread_program(Collective.BROADCAST, 3, timed)
    schedule = compile_schedule(lower(program, "chain", fuse_forks=False), CHAIN)
    # Two messages share each link fairly: the first two, 1 us each, take 2 us, and so does a hop.
    # In turn one follows the other.
    assert rehearsal == pytest.approx((503.0, 504.0))
    assert schedule.times(size_bytes, ExecutionModel()) == pytest.approx(rehearsal)


def test_backwards_every_rank_waits_for_all_that_is_added() -> None:
    star = direct(4, {(0, 1): 100.0, (0, 2): 100.0, (0, 3): 50.0}, alpha_us=1.0)
    tree = RouteTree(1, ((1, 0), (0, 2), (0, 3)))
    turned = reversed_sketch(star)
    timetable = list_schedule([tree], 1, resources(turned, 100_000))
    timed = TimedTrees((tree,), 1, 1, timetable)
    # 3 -> 0 takes 2 + 1 us, then 0 -> 1 another 1 + 1.
    times = rehearsed(timed, 100_000, star, backwards=True)
    assert times == pytest.approx((5.0, 5.0))


def test_sums_into_one_chunk_are_added_in_their_order() -> None:
    links = {(0, 1): 100.0, (0, 2): 100.0, (0, 3): 10.0}
    trees = (RouteTree(1, ((1, 0), (0, 2), (0, 3))), RouteTree(1, ((1, 0), (0, 2))))
    # By arrival, the latest start of the reversed trees first: rank 3's sum precedes rank 2's.
    hops = [(0, (0, 3)), (0, (0, 2)), (1, (0, 2)), (1, (1, 0)), (0, (1, 0))]
    timetable = Timetable(
        tuple(TimedHop(tree, 0, hop, 5.0 - k, 6.0 - k) for k, (tree, hop) in enumerate(hops)), 6.0
    )
    times = rehearsed(
        TimedTrees(trees, 2, 1, timetable), 100_000, direct(4, links, alpha_us=1.0), backwards=True
    )
    # Rank 3's takes 10 + 1 us; both sums of rank 2 come behind it, and then two results go on.
    assert times == pytest.approx((14.0, 14.0))


def test_the_longest_path_or_the_longest_wait_goes_first() -> None:
    # Rank 0 sends to 1 (a leaf) and to 2, which must pass it on; rank 2's own chunk comes later.
    sketch = switched(1, 3)
    trees = [RouteTree(0, ((0, 1), (0, 2))), RouteTree(1, ((1, 0), (0, 2)))]
    costs = resources(sketch, 300_000)

    def starts(precedence: Precedence) -> list[tuple[int, tuple[int, int]]]:
        timetable = list_schedule(trees, 1, costs, precedence)
        return [(timed.tree, timed.hop) for timed in timetable.hops]

    assert starts(Precedence.LONGEST_PATH)[:2] == [(1, (1, 0)), (0, (0, 1))]
    assert starts(Precedence.LONGEST_WAIT)[-1] == (1, (0, 2))


SKETCHES = (
    switched(2, 4),
    torus(3),
    replace(hybrid_cube_mesh(), symmetries=find_symmetries(hybrid_cube_mesh())),
)
QUICKEST = ((Collective.ALL_GATHER, 10**6, 0), (Collective.REDUCE_SCATTER, 10**9, 0))
"""What every run of the tests takes."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("collective", "size_bytes", "sketch"),
    [
        pytest.param(
            *(collective, size_bytes, sketch),
            marks=[] if (collective, size_bytes, number) in QUICKEST else [pytest.mark.slow],
        )
        for collective in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
        for size_bytes in (10**6, 10**9)
        for number, sketch in enumerate(SKETCHES)
    ],
)
def test_a_rehearsal_predicts_the_lowered_schedule(
    sketch: Sketch, collective: Collective, size_bytes: int
) -> None:
    result = synthesize(collective, sketch, size_bytes, SynthesisOptions(time_limit_s=0.5))
    simulated = compile_schedule(result.algorithm, sketch).time_us(size_bytes, ExecutionModel())
    assert simulated == pytest.approx(result.timetable_us, rel=0.02)
