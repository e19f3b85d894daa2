"""Timetables of transfers that queue at ports: by hand, and kept by their rehearsal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sketches.sketch import Sketch
from synthesizer.plan.composition import TimedTrees
from synthesizer.plan.list_schedule import Timetable, list_schedule
from synthesizer.plan.port_queues import Urgency, queued_timetable
from synthesizer.plan.timetabling import rehearsed
from synthesizer.solve.packing import shallow_trees
from synthesizer.solve.routes import (
    Family,
    RouteTree,
    expand,
    rank_orbits,
    resources,
    reversed_sketch,
)
from tests.synthesizer.hand_sketches import direct, switched

PIECE_BYTES = 100_000
"""Takes 1 us at 100 GB/s."""


def starts(timetable: Timetable) -> list[tuple[int, tuple[int, int], float, float]]:
    found = [(timed.piece, timed.hop, timed.start_us, timed.end_us) for timed in timetable.hops]
    return sorted(found, key=lambda timed: (timed[2], timed[:2]))


def test_pieces_follow_each_other_along_a_chain() -> None:
    chain = direct(3, {(0, 1): 100.0, (1, 2): 100.0}, alpha_us=1.0)
    tree = RouteTree(0, ((0, 1), (1, 2)))
    timetable = queued_timetable([tree], 2, resources(chain, PIECE_BYTES), backwards=False)
    assert timetable.end_us == pytest.approx(5)
    assert [(piece, hop, start) for piece, hop, start, _ in starts(timetable)] == [
        (0, (0, 1), 0.0),
        (1, (0, 1), 1.0),
        (0, (1, 2), 2.0),
        (1, (1, 2), 3.0),
    ]


def test_a_sum_waits_for_all_of_its_branches() -> None:
    """Rank 0 adds what 2 and 3 send, 3 over a link of half the bandwidth, and passes it to 1."""
    star = direct(4, {(0, 1): 100.0, (2, 0): 100.0, (3, 0): 50.0}, alpha_us=1.0)
    tree = RouteTree(1, ((1, 0), (0, 2), (0, 3)))
    costs = resources(reversed_sketch(star), PIECE_BYTES)
    timetable = queued_timetable([tree], 1, costs, backwards=True)
    assert timetable.end_us == pytest.approx(5)
    # On the reversed sketch 1 -> 0 goes first, and what 3 sends takes longest.
    assert [hop for _, hop, _, _ in starts(timetable)] == [(1, 0), (0, 3), (0, 2)]
    assert [start for _, _, start, _ in starts(timetable)] == pytest.approx([0, 2, 3])


def test_chunk_by_chunk_a_short_path_does_not_wait_for_the_long_ones() -> None:
    """Of two trees over 0 -> 1 the second goes on to 2; pieces take turns between both."""
    chain = direct(3, {(0, 1): 100.0, (1, 2): 100.0}, alpha_us=1.0)
    trees = [RouteTree(0, ((0, 1),)), RouteTree(0, ((0, 1), (1, 2)))]
    costs = resources(chain, PIECE_BYTES)
    orders = {
        urgency: [
            (timed.tree, timed.piece)
            for timed in queued_timetable(trees, 2, costs, urgency, backwards=False).hops
            if timed.hop == (0, 1)
        ]
        for urgency in Urgency
    }
    # The very first one is sent as soon as it is offered.
    assert orders[Urgency.LONGEST_PATH] == [(0, 0), (1, 0), (1, 1), (0, 1)]
    assert orders[Urgency.CHUNK_BY_CHUNK] == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_at_a_port_who_comes_first_goes_first() -> None:
    """List scheduling lets the longer path pass; messages at a port do not."""
    sketch = switched(1, 4)
    trees = [RouteTree(0, ((0, 1),)), RouteTree(0, ((0, 2), (2, 3)))]
    costs = resources(sketch, PIECE_BYTES)
    listed, queued = (
        list_schedule(trees, 1, costs),
        queued_timetable(trees, 1, costs, backwards=False),
    )
    assert starts(listed)[0][1] == (0, 2)
    assert starts(queued)[0][1] == (0, 1)


@pytest.mark.parametrize("backwards", [False, True])
def test_the_rehearsal_keeps_it_on_an_uneven_machine(backwards: bool) -> None:
    whole = switched(2, 4)
    ports = tuple(
        replace(port, bandwidth_gb_per_s=port.bandwidth_gb_per_s * (0.8 if i == 0 else 1))
        for i, port in enumerate(whole.ports)
    )
    sketch: Sketch = replace(whole, ports=ports, symmetries=())
    found = reversed_sketch(sketch) if backwards else sketch
    families = [Family(orbit, i) for orbit in rank_orbits(found) for i in range(2)]
    costs = resources(found, PIECE_BYTES * 8)
    trees = expand(shallow_trees(costs, families, found.node_of_rank, 1.0))
    timetable = queued_timetable(trees, 8, resources(found, PIECE_BYTES), backwards=backwards)
    timed = TimedTrees(trees, 2, 8, timetable)
    times = rehearsed(timed, PIECE_BYTES, sketch, backwards=backwards)
    assert times.in_turn_us == pytest.approx(timetable.end_us, rel=0.01)
