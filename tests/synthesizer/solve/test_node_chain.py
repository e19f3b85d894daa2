"""Which connections chains of nodes and their parts keep, and which sketches have none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sketches.sketch import Sketch
from synthesizer.solve.node_chain import chain_of_nodes, over_each_nic
from tests.synthesizer.hand_sketches import borrowing, switched


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


def test_each_nic_of_the_roots_node_has_a_part_with_one_connection() -> None:
    """Rank 0 has no NIC and uses that of rank 1."""
    chain = chain_of_nodes(borrowing(switched(2, 4)), 0)
    assert chain is not None
    assert _crossing(chain) == {(0, 5), (1, 5), (2, 6), (3, 7)}
    parts = over_each_nic(chain, 0)
    assert [_crossing(part) for part in parts] == [{(1, 5)}, {(2, 6)}, {(3, 7)}]
    # The root sends to the GPU with the part's NIC alone, and all others send as before.
    assert [{b for a, b in part.edge if a == 0} for part in parts] == [{1}, {2}, {3}]
    elsewhere = {hop for hop in chain.edge if hop[0] != 0 and hop not in _crossing(chain)}
    assert all(elsewhere < set(part.edge) for part in parts)


def test_the_part_of_the_roots_own_nic_leaves_the_root_inside_its_node_too() -> None:
    chain = chain_of_nodes(switched(3, 2), 0)
    assert chain is not None
    parts = {min(_crossing(part)): part for part in over_each_nic(chain, 0)}
    assert set(parts) == {(0, 2), (1, 3)}
    assert {b for a, b in parts[0, 2].edge if a == 0} == {1, 2}
    assert {b for a, b in parts[1, 3].edge if a == 0} == {1}
    # What the second node sends to the third is in both.
    assert all({(2, 4), (3, 5)} < _crossing(part) for part in parts.values())


def test_nodes_on_one_port_have_no_parts() -> None:
    """Only the first of three nodes could send."""
    chain = chain_of_nodes(switched(3, 2), 0)
    assert chain is not None
    assert len(over_each_nic(chain, 0)) == 2
    one_port = tuple(
        replace(edge, ports=("network",)) if edge.src // 2 != edge.dst // 2 else edge
        for edge in chain.edges
    )
    port = replace(chain.ports[0], name="network")
    assert over_each_nic(replace(chain, edges=one_port, ports=(*chain.ports, port)), 0) == ()


def _crossing(sketch: Sketch) -> set[tuple[int, int]]:
    at = sketch.node_of_rank
    return {(a, b) for a, b in sketch.edge if at[a] != at[b]}


def _nodes(sketch: Sketch) -> set[tuple[int, int]]:
    return {(sketch.node_of_rank[edge.src], sketch.node_of_rank[edge.dst]) for edge in sketch.edges}
