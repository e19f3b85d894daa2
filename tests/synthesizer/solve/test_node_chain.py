"""Which connections `chain_of_nodes` keeps, and which sketches have no chain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sketches.sketch import Sketch
from synthesizer.solve.node_chain import chain_of_nodes
from tests.synthesizer.hand_sketches import switched


@pytest.mark.parametrize(
    ("root", "onward"), [(0, {(0, 1), (1, 2), (2, 3)}), (5, {(2, 3), (3, 0), (0, 1)})]
)
def test_each_node_sends_to_the_next_from_the_root_on(
    root: int, onward: set[tuple[int, int]]
) -> None:
    sketch = switched(4, 2)
    chain = chain_of_nodes(sketch, root)
    assert chain is not None
    assert {pair for pair in _nodes(chain) if pair[0] != pair[1]} == onward
    inside = [edge for edge in sketch.edges if edge.src // 2 == edge.dst // 2]
    assert set(inside) < set(chain.edges)
    assert len(chain.edges) == len(inside) + 3 * 2


def test_of_two_nodes_the_second_sends_nothing_back() -> None:
    chain = chain_of_nodes(switched(2, 4), 0)
    assert chain is not None
    assert _nodes(chain) == {(0, 0), (0, 1), (1, 1)}


def test_one_node_has_no_chain() -> None:
    assert chain_of_nodes(switched(1, 4), 0) is None


def test_a_star_of_nodes_has_no_chain() -> None:
    sketch = switched(3, 2)
    star = tuple(edge for edge in sketch.edges if 0 in {edge.src // 2, edge.dst // 2})
    assert chain_of_nodes(replace(sketch, edges=star), 0) is None


def _nodes(sketch: Sketch) -> set[tuple[int, int]]:
    return {(sketch.node_of_rank[edge.src], sketch.node_of_rank[edge.dst]) for edge in sketch.edges}
