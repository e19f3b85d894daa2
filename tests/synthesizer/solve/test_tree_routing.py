"""Resources, orbits, greedy trees, routing programs and list scheduling, computed by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from sketches.sketch import Edge, EdgeKind, Port, Sketch
from synthesizer.plan.list_schedule import list_schedule
from synthesizer.solve.greedy import soonest_trees
from synthesizer.solve.path_routing import pairs_of, route_pairs
from synthesizer.solve.routes import (
    Family,
    Orbit,
    RouteTree,
    expand,
    least_time_us,
    rank_orbits,
    resources,
    reversed_sketch,
    single,
)
from synthesizer.solve.solver import SolveStatus
from synthesizer.solve.tree_routing import route_trees
from tests.synthesizer.hand_sketches import direct, hybrid_cube_mesh, switched, torus


def test_ports_and_narrow_edges_are_resources() -> None:
    ports = (Port("out", 100.0), Port("in", 50.0))
    wide = Edge(0, 1, EdgeKind.NVLINK, 1.0, 50.0, ("out", "in"))
    narrow = Edge(0, 2, EdgeKind.PCIE, 2.0, 10.0, ("out",))
    sketch = Sketch("s", "test", (0, 0, 0), (wide, narrow), ports)
    costs = resources(sketch, 100_000)
    assert costs.names == ("out", "in", "0->2")
    assert costs.busy_us == (1.0, 2.0, 10.0)
    assert costs.of_edge == {(0, 1): (0, 1), (0, 2): (0, 2)}
    assert costs.latency_us == {(0, 1): 3.0, (0, 2): 12.0}
    assert costs.loads_us([(0, 1), (0, 2)]) == [2.0, 2.0, 10.0]
    # The busiest resource is the narrow edge, and its last chunk has 2 us of alpha to go.
    assert costs.least_time_us([2.0, 2.0, 10.0]) == 12.0


def test_reversing_twice_changes_nothing() -> None:
    sketch = switched(2, 3)
    turned = reversed_sketch(sketch)
    assert turned.edge[1, 0].ports == sketch.edge[0, 1].ports[::-1]
    assert reversed_sketch(turned).edges == sketch.edges


def test_orbits_lead_from_the_representative_to_every_member_once() -> None:
    (orbit,) = rank_orbits(switched(2, 4))
    assert orbit.representative == 0
    assert sorted(image[0] for image in orbit.images) == list(range(8))
    assert [o.representative for o in rank_orbits(switched(2, 4, rotations=False))] == list(
        range(8)
    )


def test_the_images_of_a_tree_are_spread_over_the_machine() -> None:
    (orbit,) = rank_orbits(switched(2, 2))
    trees = expand({Family(orbit, 0): RouteTree(0, ((0, 2), (0, 1), (2, 3)))})
    assert [tree.source for tree in trees] == [0, 1, 2, 3]
    assert trees[3] == RouteTree(3, ((3, 1), (3, 2), (1, 0)))


def _families(sketch: Sketch, trees: int = 1) -> list[Family]:
    return [Family(orbit, i) for orbit in rank_orbits(sketch) for i in range(trees)]


def _assert_spanning(tree: RouteTree, sketch: Sketch) -> None:
    reached = {tree.source}
    for a, b in tree.hops:
        assert a in reached
        assert b not in reached
        assert (a, b) in sketch.edge
        reached.add(b)
    assert len(reached) == sketch.ranks


@pytest.mark.parametrize("sketch", [switched(2, 4), hybrid_cube_mesh(), torus(3)])
def test_greedy_trees_span(sketch: Sketch) -> None:
    costs = resources(sketch, 1e6)
    families = _families(sketch)
    for tree in expand(soonest_trees(costs, families, sketch.ranks)):
        _assert_spanning(tree, sketch)


@pytest.mark.parametrize(
    ("slots", "way"),
    [
        # 0 -> 1 takes 6 us, and 1 us more for the second chunk that follows the first.
        (8, {(0, 1), (0, 2)}),
        # The second chunk waits for the first to arrive: 12 us straight, 8 + 3 us by rank 2.
        (1, {(0, 2), (2, 1)}),
    ],
)
def test_a_full_fifo_sends_a_greedy_tree_another_way(slots: int, way: set[tuple[int, int]]) -> None:
    alphas = {(0, 1): 5.0, (0, 2): 3.0, (2, 1): 2.0}
    edges = tuple(Edge(*hop, EdgeKind.NVLINK, alpha, 100.0) for hop, alpha in alphas.items())
    sketch = Sketch("s", "test", (0, 0, 0), edges, ())
    families = [Family(single(0, 3), i) for i in range(2)]
    trees = soonest_trees(resources(sketch, 100_000), families, 3, slots)
    assert set(trees[families[0]].hops) == {(0, 1), (0, 2)}
    assert set(trees[families[1]].hops) == way


def test_routing_reaches_the_bound_of_two_switched_nodes_with_one_tree_each() -> None:
    # Every GPU receives 14 of the 15 other blocks through its 300 GB/s port and one by its NIC.
    sketch = switched(2, 8)
    block = 1e9 / 16
    costs = resources(sketch, block)
    start = soonest_trees(costs, _families(sketch), sketch.ranks)
    routing = route_trees(sketch, costs, start, 10.0, 0.01)
    assert routing.status is SolveStatus.OPTIMAL
    assert routing.least_time_us == pytest.approx(14 * block / 300e3 + 0.7, rel=0.01)
    assert routing.bound_us <= routing.least_time_us
    assert routing.bound_us >= 0.97 * routing.least_time_us
    for tree in routing.trees:
        _assert_spanning(tree, sketch)


def test_small_chunks_go_straight() -> None:
    sketch = switched(1, 8)
    costs = resources(sketch, 16)
    start = soonest_trees(costs, _families(sketch), sketch.ranks)
    routing = route_trees(sketch, costs, start, 10.0, 0.01)
    assert all(a == tree.source for tree in routing.trees for a, _ in tree.hops)


def test_too_large_a_problem_is_routed_tree_by_tree_and_never_worse_than_its_start() -> None:
    sketch = switched(2, 6, rotations=False)
    costs = resources(sketch, 1e7)
    start = soonest_trees(costs, _families(sketch), sketch.ranks)
    routing = route_trees(sketch, costs, start, 1.0, 0.05)
    assert routing.status is None
    assert routing.bound_us == 0.0
    assert routing.least_time_us <= least_time_us(expand(start), costs)


def test_sweeps_find_the_balance_that_symmetry_would_have_given() -> None:
    # Twice the speed between nodes, so that the switches bind: ten blocks through every port.
    sketch = switched(2, 6, nic_gb_per_s=50.0, rotations=False)
    block = 1e9 / 12
    costs = resources(sketch, block)
    start = soonest_trees(costs, _families(sketch), sketch.ranks)
    routing = route_trees(sketch, costs, start, 20.0, 0.01)
    assert routing.status is None
    assert not routing.limit_hit
    assert routing.least_time_us <= 11 * block / 300e3 + 0.7 + 1e-6
    assert routing.least_time_us < least_time_us(expand(start), costs)


def test_no_time_gives_the_start_back() -> None:
    sketch = torus(3)
    costs = resources(sketch, 1e6)
    start = soonest_trees(costs, _families(sketch), sketch.ranks)
    routing = route_trees(sketch, costs, start, 0.0, 0.0)
    assert routing.limit_hit
    assert routing.least_time_us <= least_time_us(expand(start), costs)


def test_pairs_without_an_edge_go_through_the_rail() -> None:
    sketch = switched(2, 4)
    pairs = route_pairs(pairs_of(Collective.ALLTOALL, sketch), resources(sketch, 1e6), 10.0, 0.01)
    assert len(pairs.targets) == 8 * 7
    crossings = [0] * 8
    for tree, target in zip(pairs.routing.trees, pairs.targets, strict=True):
        assert tree.hops[-1][1] == target
        for a, b in tree.hops:
            crossings[a] += a // 4 != b // 4
    # Each GPU's NIC takes four blocks across, no more than its share of the node's sixteen.
    assert crossings == [4] * 8
    assert pairs.routing.status is SolveStatus.OPTIMAL


def test_list_schedule_pipelines_pieces_along_a_chain() -> None:
    chain = direct(3, {(0, 1): 100.0, (1, 2): 100.0}, alpha_us=1.0)
    costs = resources(chain, 100_000)
    tree = RouteTree(0, ((0, 1), (1, 2)))
    timetable = list_schedule([tree], 3, costs)
    # Three pieces of 1 us leave one after another; the last arrives at 4 and again 2 us later.
    assert [(t.piece, t.hop, t.start_us) for t in timetable.hops] == [
        (0, (0, 1), 0.0),
        (1, (0, 1), 1.0),
        (2, (0, 1), 2.0),
        (0, (1, 2), 2.0),
        (1, (1, 2), 3.0),
        (2, (1, 2), 4.0),
    ]
    assert timetable.end_us == 6.0


@given(st.integers(2, 6), st.integers(1, 3), st.randoms(use_true_random=False))
def test_no_resource_serves_two_transfers_at_once(ranks: int, pieces: int, random: object) -> None:
    sketch = switched(1, ranks)
    costs = resources(sketch, 30_000)
    trees = []
    for source in range(ranks):
        reached, hops = [source], []
        others = [rank for rank in range(ranks) if rank != source]
        random.shuffle(others)  # type: ignore[attr-defined]
        for rank in others:
            hops.append((random.choice(reached), rank))  # type: ignore[attr-defined]
            reached.append(rank)
        trees.append(RouteTree(source, tuple(hops)))
    timetable = list_schedule(trees, pieces, costs)
    assert len(timetable.hops) == ranks * (ranks - 1) * pieces
    busy: dict[int, list[float]] = {}
    for timed in timetable.hops:
        for resource in costs.of_edge[timed.hop]:
            busy.setdefault(resource, []).append(timed.start_us)
    for resource, starts in busy.items():
        ordered = sorted(starts)
        for earlier, later in pairwise(ordered):
            assert later - earlier >= costs.busy_us[resource] - 1e-9
    assert timetable.end_us >= least_time_us(trees, costs) - 1e-9


def test_a_single_orbit_is_the_rank_alone() -> None:
    assert single(2, 3) == Orbit(2, ((0, 1, 2),))
