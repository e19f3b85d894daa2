"""Shallow packing: loads as even as in packing, with one crossing into each node."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import algbw_bound_gb_per_s
from synthesizer.ir.collectives import Collective
from synthesizer.solve.packing import packed_trees, shallow_trees
from synthesizer.solve.routes import Family, RouteTree, expand, rank_orbits, resources
from tests.synthesizer.hand_sketches import direct, switched

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
