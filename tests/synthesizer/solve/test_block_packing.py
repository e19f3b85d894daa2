"""Packing of blocks: spanning trees of every source, and a load at the bound."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from sketches.symmetry import find_symmetries
from synthesizer.bounds.time_bounds import algbw_bound_gb_per_s
from synthesizer.solve.block_packing import BlockPacking
from synthesizer.solve.node_chain import chain_of_nodes, over_each_nic
from synthesizer.solve.routes import RouteTree, expand, rank_orbits, resources, single
from synthesizer.solve.two_way_trees import Spanning
from tests.synthesizer.hand_sketches import direct, hybrid_cube_mesh, less_a_link, switched, torus

SIZE_BYTES = 10**9


SKETCHES = {
    "cube_mesh": less_a_link(hybrid_cube_mesh()),
    "torus": less_a_link(torus(3)),
    "2x4": switched(2, 4, rotations=False),
    "symmetric": replace(hybrid_cube_mesh(), symmetries=find_symmetries(hybrid_cube_mesh())),
}


def packed(sketch: Sketch, chunks: int) -> tuple[RouteTree, ...]:
    packing = BlockPacking(sketch, rank_orbits(sketch), SIZE_BYTES / sketch.ranks, 0.02)
    return expand(packing.trees(chunks))


@pytest.mark.parametrize("name", SKETCHES)
def test_trees_span_and_load_ports_as_the_bound_allows(name: str) -> None:
    sketch, chunks = SKETCHES[name], 32
    trees = packed(sketch, chunks)
    assert Counter(tree.source for tree in trees) == dict.fromkeys(range(sketch.ranks), chunks)
    for tree in set(trees):
        reached = {tree.source}
        for a, b in tree.hops:
            assert (a, b) in sketch.edge
            assert a in reached
            assert b not in reached
            reached.add(b)
        assert reached == set(range(sketch.ranks))
    costs = resources(sketch, SIZE_BYTES / sketch.ranks / chunks)
    load_us = max(costs.loads_us(hop for tree in trees for hop in tree.hops))
    bound_us = SIZE_BYTES * 1e-3 / algbw_bound_gb_per_s(Collective.ALL_GATHER, sketch)
    assert bound_us <= load_us * (1 + 1e-9)
    assert load_us <= bound_us * 1.03


def test_a_block_takes_both_ways_in_the_proportion_of_their_bandwidths() -> None:
    sketch = direct(3, {(0, 1): 75.0, (0, 2): 75.0, (1, 2): 25.0})
    orbit = rank_orbits(sketch)[:1]
    trees = expand(BlockPacking(sketch, orbit, SIZE_BYTES, 0.02).trees(12))
    # Ranks 1 and 2 take 75 GB/s from rank 0 and 25 GB/s from each other.
    through = Counter(next(a for a, b in tree.hops if b == 2) for tree in trees)
    assert through == {0: 9, 1: 3}


def test_trees_of_a_root_are_shallow_and_use_its_connections_evenly() -> None:
    """Each of the seven others gets a seventh from the root and passes it to the rest."""
    sketch = switched(1, 8)
    trees = expand(BlockPacking(sketch, [single(0, 8)], SIZE_BYTES, 0.02).trees(70))
    for tree in trees:
        first = {b for a, b in tree.hops if a == 0}
        assert all(a in {0} | first for a, _ in tree.hops)
    from_root = Counter(b for tree in trees for a, b in tree.hops if a == 0)
    assert from_root == dict.fromkeys(range(1, 8), 10)


def test_parts_of_a_block_carry_as_many_chunks_each_in_turn() -> None:
    sketch = switched(2, 4)
    chain = chain_of_nodes(sketch, 0)
    assert chain is not None
    parts = over_each_nic(chain, 0)
    packing = BlockPacking(chain, [single(0, 8)], SIZE_BYTES, 0.02, parts=parts)
    trees = expand(packing.trees(6))
    crossing = [next((a, b) for a, b in tree.hops if b >= 4) for tree in trees]
    first = [next((a, b) for a, b in part.edge if a < 4 <= b) for part in parts]
    assert crossing == first * 6
    for tree, part in zip(trees, parts * 6, strict=True):
        assert set(tree.hops) <= set(part.edge)
        assert {b for _, b in tree.hops} == set(range(1, 8))


def test_the_same_request_gives_the_same_trees() -> None:
    once, again = (packed(SKETCHES["torus"], 16) for _ in range(2))
    assert once == again


@pytest.mark.parametrize(
    ("direct_price", "hops"),
    [
        # Three free hops in a row take 3; two of 0.2 save two of these.
        (0.2, {(0, 1), (0, 2), (0, 3)}),
        (2.0, {(0, 1), (1, 2), (2, 3)}),
    ],
)
def test_a_low_tree_weighs_prices_against_its_latest_arrival(
    direct_price: float, hops: set[tuple[int, int]]
) -> None:
    price = {(0, 1): 0.0, (1, 2): 0.0, (2, 3): 0.0, (0, 2): direct_price, (0, 3): direct_price}
    assert set(Spanning(price, dict.fromkeys(price, 1.0)).low(0, price)) == hops
