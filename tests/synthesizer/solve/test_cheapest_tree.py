"""The cheapest tree: as cheap as networkx finds it, also where cycles lie within cycles."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthesizer.solve.two_way_trees import cheapest_tree


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
