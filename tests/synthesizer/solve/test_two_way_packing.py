"""Two-way packing: spanning trees both ways, loads at the bound, and roots where ports are wide."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import algbw_bound_gb_per_s
from synthesizer.solve.routes import resources
from synthesizer.solve.two_way_packing import TwoWayPacking, without_busiest
from synthesizer.solve.two_way_trees import Spanning, TwoWayTree, cheapest_tree
from tests.synthesizer.hand_sketches import direct, hybrid_cube_mesh, less_a_link, switched, torus

SIZE_BYTES = 10**9


def with_a_slow_rank(sketch: Sketch, gb_per_s: float) -> Sketch:
    """Return the sketch with a lower bandwidth into and out of rank 0."""
    ports = tuple(
        replace(port, bandwidth_gb_per_s=gb_per_s) if port.name.startswith("g0/") else port
        for port in sketch.ports
    )
    edges = tuple(
        replace(edge, bandwidth_gb_per_s=gb_per_s) if 0 in {edge.src, edge.dst} else edge
        for edge in sketch.edges
    )
    return replace(sketch, edges=edges, ports=ports, symmetries=())


SKETCHES = {
    "cube_mesh": less_a_link(hybrid_cube_mesh()),
    "torus": less_a_link(torus(3)),
    "switch": with_a_slow_rank(switched(1, 4), 150.0),
    "2x4": with_a_slow_rank(switched(2, 4), 150.0),
}


def load_us(sketch: Sketch, trees: tuple[TwoWayTree, ...]) -> float:
    costs = resources(sketch, SIZE_BYTES / len(trees))
    return max(costs.loads_us(hop for tree in trees for hop in (*tree.up, *tree.down)))


def holds_every_rank(tree: TwoWayTree, sketch: Sketch) -> None:
    reached = {tree.root}
    for a, b in tree.down:
        assert a in reached
        assert b not in reached
        reached.add(b)
    assert reached == set(range(sketch.ranks))
    sent: set[int] = set()
    for a, b in tree.up:
        assert a not in sent
        assert b not in sent
        sent.add(a)
    assert sent == reached - {tree.root}


@pytest.mark.long
@pytest.mark.parametrize("balance", [0.0, 0.3])
@pytest.mark.parametrize("name", SKETCHES)
def test_trees_span_and_load_ports_as_the_bound_allows(name: str, balance: float) -> None:
    sketch = SKETCHES[name]
    packing = TwoWayPacking(sketch, SIZE_BYTES, balance)
    bound_us = SIZE_BYTES * 1e-3 / algbw_bound_gb_per_s(Collective.ALL_REDUCE, sketch)
    for chunks in (16, 512):
        trees = packing.trees(chunks, 10.0)
        assert len(trees) == chunks
        for tree in set(trees):
            holds_every_rank(tree, sketch)
            assert {(a, b) for a, b in (*tree.up, *tree.down)} <= set(sketch.edge)
    assert bound_us <= load_us(sketch, trees) * (1 + 1e-9)
    assert load_us(sketch, trees) <= bound_us * 1.03


def test_a_slow_rank_is_no_root() -> None:
    """With equal shares its port would take 1.5 times the buffer; as a leaf it takes the buffer."""
    sketch = SKETCHES["switch"]
    trees = TwoWayPacking(sketch, SIZE_BYTES).trees(48, 10.0)
    assert Counter(tree.root for tree in trees)[0] == 0
    assert load_us(sketch, trees) == pytest.approx(SIZE_BYTES * 1e-3 / 150)


def star(root: int, ranks: int) -> TwoWayTree:
    others = [rank for rank in range(ranks) if rank != root]
    return TwoWayTree(root, tuple((r, root) for r in others), tuple((root, r) for r in others))


def test_equal_shares_become_unequal_where_a_rank_is_slow() -> None:
    """In stars a root receives three chunks of four, two of six, and every other rank one.

    The slow rank 0 takes (2 x 3 + 6) / 8 of the buffer, without its own two chunks 6 / 6; the
    others (2 x 3 + 4) / 6 at twice the speed.
    """
    sketch = with_a_slow_rank(switched(1, 4, nvlink_gb_per_s=200.0), 100.0)
    trees = tuple(star(root, 4) for root in range(4)) * 2
    assert load_us(sketch, trees) == pytest.approx(1.5 * SIZE_BYTES * 1e-3 / 100)
    left = without_busiest(trees, sketch)
    assert [tree.root for tree in left] == [1, 2, 3, 1, 2, 3]
    assert load_us(sketch, left) == pytest.approx(SIZE_BYTES * 1e-3 / 100)


def test_equal_shares_stay_where_ranks_are_alike() -> None:
    trees = tuple(star(root, 4) for root in range(4)) * 2
    assert without_busiest(trees, switched(1, 4)) == trees


@pytest.mark.long
def test_sums_alone_and_results_alone_load_ports_evenly_if_asked_for() -> None:
    sketch = SKETCHES["torus"]

    def halves_us(balance: float) -> float:
        trees = TwoWayPacking(sketch, SIZE_BYTES, balance).trees(512, 10.0)
        costs = resources(sketch, SIZE_BYTES / len(trees))
        ups = costs.loads_us(hop for tree in trees for hop in tree.up)
        downs = costs.loads_us(hop for tree in trees for hop in tree.down)
        return max(ups) + max(downs)

    assert halves_us(0.3) < 0.9 * halves_us(0.0)


def test_a_tree_takes_cheap_hops_unless_they_cost_too_much_time() -> None:
    hops = [(0, 1), (0, 2), (1, 2), (2, 1)]
    spanning = Spanning(hops, dict.fromkeys(hops, 1.0))
    price = dict.fromkeys(hops, 1.0)
    assert spanning.tree(0, price) == ((0, 1), (0, 2))
    assert spanning.tree(0, price | {(0, 2): 2.0}) == ((0, 1), (1, 2))
    assert spanning.height_us(0, ((0, 1), (1, 2))) == pytest.approx(2)


def test_the_same_request_gives_the_same_trees() -> None:
    sketch = direct(4, {(0, 1): 25.0, (1, 2): 50.0, (2, 3): 25.0, (3, 0): 50.0})
    once, again = (TwoWayPacking(sketch, SIZE_BYTES).trees(32, 10.0) for _ in range(2))
    assert once == again


@pytest.mark.long
@given(st.data())
def test_no_tree_is_cheaper(data: st.DataObject) -> None:
    ranks = data.draw(st.integers(2, 8))
    root = data.draw(st.integers(0, ranks - 1))
    # A ring connects all ranks; equal prices are frequent.
    price = {
        (a, b): float(data.draw(st.integers(0, 5)))
        for a in range(ranks)
        for b in range(ranks)
        if a != b and (b == (a + 1) % ranks or data.draw(st.booleans()))
    }
    parent = cheapest_tree(root, ranks, price)
    assert set(parent) == set(range(ranks)) - {root}
    graph = nx.DiGraph((a, b, {"weight": cost}) for (a, b), cost in price.items() if b != root)
    tree = nx.DiGraph((a, b) for b, a in parent.items())
    assert nx.is_arborescence(tree)
    least = nx.minimum_spanning_arborescence(graph).size(weight="weight")
    assert sum(price[a, b] for b, a in parent.items()) == least


def test_a_cycle_of_cheap_hops_is_entered_where_it_costs_least() -> None:
    price = {(0, 1): 9.0, (0, 2): 7.0, (0, 3): 8.0, (1, 2): 1.0, (2, 3): 1.0, (3, 1): 1.0}
    assert cheapest_tree(0, 4, price) == {2: 0, 3: 2, 1: 3}
