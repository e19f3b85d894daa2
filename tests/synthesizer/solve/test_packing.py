"""Packed trees: published optima, and any connected mesh; shallow ones cross into a node once."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from sketches.symmetry import find_symmetries
from synthesizer.bounds.time_bounds import algbw_bound_gb_per_s
from synthesizer.solve.packing import packed_trees, shallow_trees
from synthesizer.solve.routes import Family, RouteTree, expand, rank_orbits, resources, single
from tests.synthesizer.hand_sketches import direct, hybrid_cube_mesh, switched, torus

GIGABYTE = 10**9


def _alike(sketch: Sketch) -> Sketch:
    return replace(sketch, symmetries=find_symmetries(sketch))


def _packed(sketch: Sketch, trees: int) -> tuple[tuple[RouteTree, ...], float]:
    """Return all trees, and the share of the bound that their loads allow."""
    bound_us = GIGABYTE * 1e-3 / algbw_bound_gb_per_s(Collective.ALL_GATHER, sketch)
    costs = resources(sketch, GIGABYTE / sketch.ranks / trees)
    families = [Family(orbit, i) for orbit in rank_orbits(sketch) for i in range(trees)]
    found = expand(packed_trees(costs, families, sketch.ranks, bound_us))
    busiest_us = max(costs.loads_us(hop for tree in found for hop in tree.hops))
    return found, bound_us / busiest_us


@pytest.mark.parametrize(
    ("sketch", "trees", "share"),
    [
        (switched(1, 8), 1, 1.0),
        # Fifteen blocks over four links: four chunks each make fifteen per link.
        (_alike(torus(4)), 4, 1.0),
        # SCCL's optimum: six chunks in seven rounds.
        (_alike(hybrid_cube_mesh()), 6, 1.0),
        # A NIC brings one block of fifteen at 25 GB/s, the switch the others at 300.
        (switched(2, 8), 1, 15 / 325 / (14 / 300)),
        # It brings nine eighths in a little less time than the switch brings the others.
        (switched(2, 8), 8, 15 / 325 / ((15 - 9 / 8) / 300)),
        # A NIC brings three halves while the switch brings 27.
        (switched(2, 8, nvlink_gb_per_s=450.0, nic_gb_per_s=50.0), 2, 1.0),
    ],
)
def test_few_trees_reach_the_bound(sketch: Sketch, trees: int, share: float) -> None:
    found, reached = _packed(sketch, trees)
    assert len(found) == sketch.ranks * trees
    assert reached == pytest.approx(share, abs=1e-3)


def test_among_equal_loads_trees_are_shallow_and_connections_few() -> None:
    found, _ = _packed(switched(1, 8), 3)
    assert all(a == tree.source for tree in found for a, _ in tree.hops)


def test_same_request_same_trees() -> None:
    assert _packed(torus(3), 3) == _packed(torus(3), 3)


@given(st.integers(3, 7), st.integers(1, 3), st.data())
def test_any_connected_mesh_gets_spanning_trees_from_every_source(
    ranks: int, trees: int, data: st.DataObject
) -> None:
    ring = {(rank, (rank + 1) % ranks): 25.0 for rank in range(ranks)}
    pairs = [(a, b) for a in range(ranks) for b in range(a + 1, ranks)]
    more = data.draw(st.lists(st.sampled_from(pairs), unique=True))
    sketch = direct(ranks, {**ring, **dict.fromkeys(more, 50.0)})
    costs = resources(sketch, 1e6)
    families = [Family(single(s, ranks), i) for s in range(ranks) for i in range(trees)]
    found = packed_trees(costs, families, ranks, 1e3)
    assert list(found) == families
    for family, tree in found.items():
        reached = {family.orbit.representative}
        for a, b in tree.hops:
            assert (a, b) in sketch.edge
            assert a in reached
            assert b not in reached
            reached.add(b)
        assert reached == set(range(ranks))


BLOCK_BYTES = 1e6


def less_one_nic(sketch: Sketch, rank: int) -> Sketch:
    """Return the sketch without edges between one rank and other nodes."""
    node = sketch.node_of_rank
    edges = tuple(
        edge
        for edge in sketch.edges
        if node[edge.src] == node[edge.dst] or rank not in {edge.src, edge.dst}
    )
    return replace(sketch, edges=edges, symmetries=())


def crossings(tree: RouteTree, sketch: Sketch) -> int:
    """Return the most hops between nodes on the path to a rank."""
    node = sketch.node_of_rank
    passed = {tree.source: 0}
    for a, b in tree.hops:
        passed[b] = passed[a] + (node[a] != node[b])
    return max(passed.values())


def trees_and_load(
    sketch: Sketch, trees: int, *, shallow: bool
) -> tuple[tuple[RouteTree, ...], float]:
    """Return the trees, and the load of the busiest resource relative to its lower bound."""
    families = [Family(orbit, i) for orbit in rank_orbits(sketch) for i in range(trees)]
    costs = resources(sketch, BLOCK_BYTES / trees)
    bound = algbw_bound_gb_per_s(Collective.ALL_GATHER, sketch)
    target_us = sketch.ranks * BLOCK_BYTES * 1e-3 / bound
    found = expand(
        shallow_trees(costs, families, sketch.node_of_rank, target_us)
        if shallow
        else packed_trees(costs, families, sketch.ranks, target_us)
    )
    loads = costs.loads_us(hop for tree in found for hop in tree.hops)
    return found, max(loads) / target_us


def test_without_a_nic_chunks_cross_once_and_load_no_more() -> None:
    # Eight blocks must enter the node over three NICs, 8/3 each; of halves 3.
    sketch = less_one_nic(switched(3, 4), 1)
    trees, load = trees_and_load(sketch, 2, shallow=True)
    packed, packed_load = trees_and_load(sketch, 2, shallow=False)
    assert load <= packed_load * (1 + 1e-9)
    once = [crossings(tree, sketch) for tree in trees].count(1)
    assert once > [crossings(tree, sketch) for tree in packed].count(1)
    assert once >= len(trees) - 2


@pytest.mark.parametrize("trees", [1, 2])
def test_even_nodes_are_loaded_as_the_bound_says(trees: int) -> None:
    found, load = trees_and_load(switched(2, 4), trees, shallow=True)
    # A NIC takes one block across, an NVLink port seven blocks in.
    assert load == pytest.approx(1.0)
    assert {crossings(tree, switched(2, 4)) for tree in found} == {1}


def test_parts_of_a_node_that_only_another_node_connects_are_entered_again() -> None:
    sketch = replace(
        direct(4, {(0, 1): 25.0, (0, 2): 25.0, (0, 3): 25.0}), node_of_rank=(0, 0, 1, 1)
    )
    found, _ = trees_and_load(sketch, 1, shallow=True)
    assert {tree.source for tree in found} == {0, 1, 2, 3}
    assert (0, 2) in found[0].hops
    assert (0, 3) in found[0].hops


@pytest.mark.long
@given(st.sets(st.integers(0, 39), max_size=26), st.integers(1, 3))
def test_every_rank_is_reached_once_on_whatever_is_connected(missing: set[int], count: int) -> None:
    whole = switched(2, 4, rotations=False)
    sketch = replace(
        whole, edges=tuple(edge for i, edge in enumerate(whole.edges) if i not in missing)
    )
    graph = nx.DiGraph([(edge.src, edge.dst) for edge in sketch.edges])
    graph.add_nodes_from(range(8))
    if not nx.is_strongly_connected(graph):
        return
    families = [Family(orbit, i) for orbit in rank_orbits(sketch) for i in range(count)]
    costs = resources(sketch, BLOCK_BYTES)
    for family, tree in shallow_trees(costs, families, sketch.node_of_rank, 1.0).items():
        reached = [family.orbit.representative]
        for a, b in tree.hops:
            assert a in reached
            reached.append(b)
        assert sorted(reached) == list(range(8))
