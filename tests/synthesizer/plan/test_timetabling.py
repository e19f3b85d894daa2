"""Timetabling: connections in turn, and their gain at the start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from sketches.candidates import sketch_candidates
from sketches.sketch import Sketch
from sketches.symmetry import find_symmetries
from synthesizer.bounds.time_bounds import latency_bound_us
from synthesizer.plan.composition import TimedTrees
from synthesizer.plan.list_schedule import Precedence, list_schedule
from synthesizer.plan.port_queues import queued_timetable
from synthesizer.plan.timetabling import PlanRequest, in_turn, rehearse, rehearsed
from synthesizer.solve.block_packing import BlockPacking
from synthesizer.solve.greedy import soonest_trees
from synthesizer.solve.packing import packed_trees
from synthesizer.solve.routes import (
    Family,
    RouteTree,
    expand,
    rank_orbits,
    resources,
    reversed_sketch,
)
from tests.sketches.machines import cluster
from tests.synthesizer.hand_sketches import hybrid_cube_mesh, owned_links, switched

BLOCK_BYTES = 2_000_000


def request(sketch: Sketch, load_bound_us: float) -> PlanRequest:
    return PlanRequest(
        sketch=sketch,
        backwards=False,
        orbits=rank_orbits(sketch),
        block_bytes=BLOCK_BYTES,
        time_limit_s=1.0,
        gap=0.01,
        trees=(4,),
        load_bound_us=load_bound_us,
        latency_bound_us=latency_bound_us(Collective.ALL_GATHER, sketch),
        pieces=1,
    )


def test_connections_take_turns_with_what_is_ready_at_once() -> None:
    # Rank 0 has two chunks for both peers: in turn, unlike with the longest wait.
    star = RouteTree(0, ((0, 1), (0, 2)))
    costs = resources(switched(1, 3), 300_000)

    def order(precedence: Precedence) -> list[tuple[int, tuple[int, int]]]:
        timetable = list_schedule([star, star], 1, costs, precedence)
        return [(timed.tree, timed.hop) for timed in timetable.hops]

    assert order(Precedence.LONGEST_WAIT) == [(0, (0, 1)), (1, (0, 1)), (0, (0, 2)), (1, (0, 2))]
    assert order(Precedence.IN_TURN) == [(0, (0, 1)), (0, (0, 2)), (1, (0, 1)), (1, (0, 2))]


@pytest.mark.long
def test_in_turn_no_port_is_idle_for_a_piece() -> None:
    sketch = owned_links(16)
    families = [Family(orbit, i) for orbit in rank_orbits(sketch) for i in range(4)]
    trees = expand(soonest_trees(resources(sketch, BLOCK_BYTES / 4), families, 32, 1))
    asked = request(sketch, 31 * 16)
    costs = resources(sketch, BLOCK_BYTES / 4)

    def in_turn_us(precedence: Precedence) -> float:
        timed = TimedTrees(trees, 4, 1, list_schedule(trees, 1, costs, precedence))
        return rehearsed(timed, BLOCK_BYTES / 4, sketch, backwards=False).in_turn_us

    # An odd GPU takes 31 blocks of 16 us through one port, and the last has 0.7 us to go.
    assert in_turn_us(Precedence.IN_TURN) == pytest.approx(31 * 16 + 0.7)
    # A piece is 4 us.
    assert in_turn_us(Precedence.LONGEST_WAIT) >= 31 * 16 + 0.7 + 4
    # In reverse the lowered schedule may take longer than predicted: the choice stays.
    before = rehearse(asked, 4, trees)
    assert in_turn(replace(asked, backwards=True), before) == before


def test_what_ends_sooner_in_another_order_stays() -> None:
    # On DGX-1 every link is as busy as the others and a turn that is no use costs 7 %.
    sketch = replace(hybrid_cube_mesh(), symmetries=find_symmetries(hybrid_cube_mesh()))
    families = [Family(orbit, i) for orbit in rank_orbits(sketch) for i in range(6)]
    costs = resources(sketch, BLOCK_BYTES / 6)
    bound_us = 7 * BLOCK_BYTES / 150e3
    trees = expand(packed_trees(costs, families, 8, bound_us))
    asked = request(sketch, bound_us)
    before = rehearse(asked, 6, trees)
    timetable = list_schedule(trees, 1, costs, Precedence.IN_TURN)
    timed = TimedTrees(trees, 6, 1, timetable)
    times = rehearsed(timed, BLOCK_BYTES / 6, sketch, backwards=False)
    assert times.worse_us > before.end_us * 1.05
    assert in_turn(asked, before) == before


def test_sums_may_run_a_queue_of_results_back() -> None:
    """A GPU that borrows three NICs sends a little over each; links are shared among many."""
    machine = cluster(2, 4, 4, absent=frozenset({"n0/nic0"}))
    sketch = next(found for found in sketch_candidates(machine) if found.name == "borrowed")
    back = reversed_sketch(sketch)
    asked = replace(request(back, 1.0), backwards=True, block_bytes=125_000_000)
    packing = BlockPacking(back, asked.orbits, asked.block_bytes, 0.02)
    trees = expand(packing.trees(4))
    costs = resources(back, asked.block_bytes / 4)

    def worse_us(*, backwards: bool) -> float:
        timetable = queued_timetable(trees, 1, costs, backwards=backwards)
        plan = TimedTrees(trees, 4, 1, timetable)
        return rehearsed(plan, asked.block_bytes / 4, sketch, backwards=True).worse_us

    found = rehearse(asked, 4, trees)
    assert found.end_us == pytest.approx(worse_us(backwards=False))
    assert found.end_us < 0.9 * worse_us(backwards=True)
