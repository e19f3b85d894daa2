from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketches.candidates import sketch_candidates, whole_machine
from sketches.sketch import Edge, EdgeKind, Port, Sketch
from sketches.symmetry import evened, find_symmetries, is_symmetry, symmetric_part
from synthesizer.solve.routes import rank_orbits, require_connected
from tests.sketches.machines import cluster
from tests.synthesizer.hand_sketches import borrowing, narrowed, switched


def _direct(ranks: int, pairs: dict[tuple[int, int], float]) -> Sketch:
    edges = tuple(
        Edge(src, dst, EdgeKind.NVLINK, 0.7, bandwidth)
        for (src, dst), bandwidth in sorted(pairs.items())
    )
    return Sketch("direct", "by hand", (0,) * ranks, edges, ())


def _ring(ranks: int) -> dict[tuple[int, int], float]:
    return {(rank, (rank + 1) % ranks): 50.0 for rank in range(ranks)}


def test_ranks_that_differ_a_little_are_evened() -> None:
    whole = switched(2, 3)
    less = narrowed(whole, 0.8)
    assert not find_symmetries(less)
    assert evened(less).ports == whole.ports
    assert evened(less).edges == whole.edges
    assert evened(less).symmetries == find_symmetries(whole)
    # NICs of 25 GB/s are no ports of a kind with an NVSwitch's, and a third is lost at most.
    assert evened(narrowed(whole, 0.6)).ports == narrowed(whole, 0.6).ports


def test_links_of_two_widths_are_not_evened() -> None:
    """As 25 and 50 GB/s in a DGX-1."""
    ring = _direct(4, {**_ring(4), (0, 1): 25.0})
    assert evened(ring) == ring


def test_a_borrowed_nic_is_no_edge_of_the_symmetric_part() -> None:
    """Ranks 0 and 4 have no NIC left; the three others of each node rotate, and the nodes swap."""
    less = borrowing(switched(2, 4))
    assert not find_symmetries(less)
    part = symmetric_part(less, 4)
    assert part
    assert set(less.edge) - set(part.edge) == {(0, 5), (5, 0)}
    assert [len(orbit.images) for orbit in rank_orbits(part)] == [2, 6]
    assert part.symmetries[0] == (0, 2, 3, 1, 4, 6, 7, 5)


@pytest.mark.parametrize("factor", [0.98, 1.02])
@pytest.mark.parametrize("number", range(len(switched(2, 4).ports)))
def test_measured_ports_of_a_symmetric_part_may_differ_a_little(factor: float, number: int) -> None:
    less = borrowing(switched(2, 4))
    ports = list(less.ports)
    own = ports[number]
    ports[number] = replace(own, bandwidth_gb_per_s=factor * own.bandwidth_gb_per_s)
    part = symmetric_part(evened(replace(less, ports=tuple(ports))), 4)
    assert part
    assert len(part.edges) == len(less.edges) - 2


def test_pairs_that_share_a_nic_rotate_together() -> None:
    """Three pairs a node; the first two of node 0 share a NIC, and one of them does without."""
    nic = {rank: f"nic{rank // 2}" for rank in range(2, 12)} | {0: "nic1", 1: "nic1"}
    edges = tuple(
        Edge(a, b, EdgeKind.NETWORK, 1.7, 25.0, (f"{nic[a]}/out", f"{nic[b]}/in"))
        if a // 6 != b // 6
        else Edge(a, b, EdgeKind.NVLINK, 0.7, 300.0, (f"g{a}/out", f"g{b}/in"))
        for a, b in permutations(range(12), 2)
    )
    names = sorted({name for edge in edges for name in edge.ports})
    ports = tuple(Port(name, 300.0 if name[0] == "g" else 25.0) for name in names)
    part = symmetric_part(Sketch("pairs", "by hand", (0,) * 6 + (1,) * 6, edges, ports), 4)
    assert part
    linked = {edge.src for edge in part.edges if edge.kind is EdgeKind.NETWORK}
    assert {0, 1, 2, 3} - linked in ({0, 1}, {2, 3})
    assert len(linked) == 10
    assert {len(orbit.images) for orbit in rank_orbits(part)} == {2, 4}


@pytest.mark.parametrize("sketch", [switched(2, 4), _direct(4, _ring(4))])
def test_where_all_units_are_alike_there_is_no_smaller_part(sketch: Sketch) -> None:
    assert symmetric_part(sketch, 4) is None


@given(st.integers(2, 3), st.integers(3, 6), st.data())
def test_a_symmetric_part_has_edges_of_its_sketch_and_true_symmetries(
    nodes: int, locals_: int, data: st.DataObject
) -> None:
    whole = switched(nodes, locals_)
    lost = data.draw(st.sets(st.sampled_from(sorted(whole.edge)), max_size=6))
    sketch = replace(
        whole, edges=tuple(e for e in whole.edges if (e.src, e.dst) not in lost), symmetries=()
    )
    part = symmetric_part(sketch, 4)
    if part:
        assert set(part.edges) <= set(sketch.edges)
        assert part.symmetries
        assert all(is_symmetry(part, symmetry) for symmetry in part.symmetries)
        require_connected(part, range(part.ranks))


def test_a_ring_turns_but_does_not_turn_back() -> None:
    ring = _direct(4, _ring(4))
    assert find_symmetries(ring) == ((1, 2, 3, 0),)
    assert not is_symmetry(ring, (3, 2, 1, 0))


def test_a_slower_link_breaks_the_symmetry_and_noise_does_not() -> None:
    slower = _direct(4, {**_ring(4), (0, 1): 25.0})
    noisy = _direct(4, {**_ring(4), (0, 1): 49.0})
    assert find_symmetries(slower) == ()
    assert find_symmetries(noisy) == ((1, 2, 3, 0),)


def test_nodes_turn_and_ranks_turn_inside_all_nodes_at_once() -> None:
    pruned = sketch_candidates(cluster(3, 4, 4))[0]
    assert pruned.symmetries == (
        (4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3),
        (1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8),
    )


def test_ports_must_map_one_to_one() -> None:
    edges = tuple(
        Edge(src, 1 - src, EdgeKind.PCIE, 1.0, 10.0, (f"up{src}", "shared")) for src in (0, 1)
    )
    ports = (Port("shared", 10.0), Port("up0", 10.0), Port("up1", 10.0))
    sketch = Sketch("ports", "by hand", (0, 0), edges, ports)
    assert is_symmetry(sketch, (1, 0))
    split = (edges[0], replace(edges[1], ports=("up1", "up1")))
    assert not is_symmetry(replace(sketch, edges=split), (1, 0))
    wider = (ports[0], ports[1], Port("up1", 20.0))
    assert not is_symmetry(replace(sketch, ports=wider), (1, 0))


def test_a_map_that_mixes_nodes_is_none() -> None:
    four = _direct(4, {(a, b): 1.0 for a in range(4) for b in range(4) if a != b})
    split = replace(four, node_of_rank=(0, 0, 1, 1))
    assert is_symmetry(four, (0, 2, 1, 3))
    assert not is_symmetry(split, (0, 2, 1, 3))
    assert is_symmetry(split, (2, 3, 0, 1))


def test_lists_that_are_no_permutation_are_refused() -> None:
    ring = _direct(3, _ring(3))
    assert not is_symmetry(ring, (0, 0, 1))
    assert not is_symmetry(ring, (0, 1))


@pytest.mark.long
@given(
    ranks=st.sampled_from([4, 6, 8]),
    bandwidths=st.lists(st.sampled_from([25.0, 50.0]), min_size=64, max_size=64),
)
def test_what_is_found_maps_every_bandwidth_onto_itself(
    ranks: int, bandwidths: list[float]
) -> None:
    pairs = {
        (a, b): bandwidths[(b - a) % ranks * 8 + a % 2]
        for a in range(ranks)
        for b in range(ranks)
        if a != b
    }
    found = find_symmetries(_direct(ranks, pairs))
    assert found
    for permutation in found:
        assert all(pairs[permutation[a], permutation[b]] == pairs[a, b] for a, b in pairs)


def test_nodes_beside_one_that_differs_are_one_orbit() -> None:
    for damaged in (
        cluster(4, 2, 2, absent=frozenset({"n1/nic0"})),
        cluster(4, 2, 2, nic_gb_per_s={(1, 0): 12.5}),
    ):
        sketch = whole_machine(damaged)
        (rotation,) = sketch.symmetries
        # Nodes 0, 2 and 3 take each other's place; ranks 2 and 3 of node 1 stay.
        assert rotation == (4, 5, 2, 3, 6, 7, 0, 1)
        assert is_symmetry(sketch, rotation)
