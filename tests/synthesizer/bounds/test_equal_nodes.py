"""Bounds of many equal nodes from three of them are those of all nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from probes.topology.graph import LinkKind, Topology
from probes.topology.replicate import Network, NetworkLayout, replicate
from sketches import candidates
from sketches.candidates import whole_machine
from sketches.equal_nodes import FoldedSketch, sample_of
from sketches.sketch import Sketch
from sketches.symmetry import find_symmetries, is_symmetry
from synthesizer.bounds import time_bounds
from synthesizer.bounds.time_bounds import time_bound
from synthesizer.experts import expert_algorithms, fewest_steps
from tests.sketches.machines import cluster, virtual_machine
from tuccl.schedules.staged_candidates import RoundsRequest, candidates_across_hosts

OPERATIONS = [each for each in Collective if each is not Collective.CUSTOM]


def folded(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> FoldedSketch:
    """Return the sketch that a machine of more nodes would have."""
    monkeypatch.setattr(candidates, "MOST_FULL_MESH_EDGES", 0)
    sketch = whole_machine(topology)
    assert isinstance(sketch, FoldedSketch)
    return sketch


@pytest.mark.parametrize("operation", OPERATIONS)
@given(
    nodes=st.integers(3, 8),
    gpus=st.integers(1, 4),
    nics=st.integers(1, 4),
    rails=st.booleans(),
    gb_per_s=st.sampled_from([2.0, 12.5, 40.0]),
)
def test_the_bound_is_that_of_all_edges_written_out(
    operation: Collective, nodes: int, gpus: int, nics: int, *, rails: bool, gb_per_s: float
) -> None:
    speeds = {(node, nic): gb_per_s for node in range(nodes) for nic in range(nics)}
    topology = cluster(nodes, gpus, nics, nic_gb_per_s=speeds, rails_only=rails)
    with pytest.MonkeyPatch.context() as monkeypatch:
        sketch = folded(topology, monkeypatch)
        # The rows of machines with many ranks, as no other is folded.
        monkeypatch.setattr(time_bounds, "MOST_SEPARATED_RANKS", 0)
        written_out = replace(sketch)
        assert len(written_out.edges) > len(sketch.sample.edges if sketch.sample else ()) or (
            nodes == 3
        )
        known = time_bound(operation, written_out)
        found = time_bound(operation, sketch)
        for size_bytes in (1, 1 << 20, 1 << 34):
            assert found.time_us(size_bytes) == pytest.approx(known.time_us(size_bytes), rel=1e-9)
        assert len(found.lines) == len(known.lines) == 2


def test_the_bound_of_a_thousand_nodes_needs_no_edge_of_theirs() -> None:
    """All_gather brings each GPU 7,999 of 8,000 parts over its 12 GB/s of PCIe."""
    topology = replicate(virtual_machine(8, 8), 1000, Network(1.0, NetworkLayout.RAILS, 5.0))
    sketch = whole_machine(topology)
    assert isinstance(sketch, FoldedSketch)
    assert "edges" not in vars(sketch)
    bound_us = time_bound(Collective.ALL_GATHER, sketch).time_us(1 << 30)
    assert bound_us == pytest.approx((1 << 30) * 7999 / 8000 / 12e3, rel=1e-5)
    assert "edges" not in vars(sketch)


@given(data=st.data(), nodes=st.integers(3, 7), rails=st.booleans())
def test_links_among_ranks_are_those_of_all_edges(
    data: st.DataObject, nodes: int, *, rails: bool
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        sketch = folded(cluster(nodes, 3, 2, rails_only=rails), monkeypatch)
    ranks = data.draw(st.lists(st.integers(0, 3 * nodes - 1), unique=True))
    assert sketch.are_linked(ranks) == replace(sketch).are_linked(ranks)


def test_a_rail_exchange_has_the_steps_that_it_cannot_do_without() -> None:
    """9 nodes of 8: each of 72 ranks exchanges with 71 others."""
    sketch = whole_machine(cluster(9, 8, 8))
    for operation in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_REDUCE):
        fewest = min(found.step_count for found in expert_algorithms(operation, sketch))
        assert fewest_steps(operation, sketch) == 2 * 72 * 71 <= fewest
    assert fewest_steps(Collective.BROADCAST, sketch) == 0
    assert fewest_steps(Collective.ALL_GATHER, whole_machine(cluster(2, 2, 2))) == 0


@pytest.mark.parametrize("operation", [Collective.ALL_REDUCE, Collective.ALL_GATHER])
def test_the_candidates_are_those_of_all_edges(
    operation: Collective, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = cluster(3, 2, 1)
    sketch = folded(topology, monkeypatch)
    monkeypatch.setattr(time_bounds, "MOST_SEPARATED_RANKS", 0)
    sizes = (1 << 12, 1 << 24)
    both = [
        candidates_across_hosts(RoundsRequest(operation, topology, whole, sizes))
        for whole in (sketch, replace(sketch))
    ]
    hashes = [[each.content_hash for each in found] for found in both]
    assert hashes[0] == hashes[1]
    assert hashes[0]
    bounds = [[[p.bound_us for p in each.promises] for each in found] for found in both]
    assert bounds[0] == [[pytest.approx(us) for us in own] for own in bounds[1]]


def test_symmetries_hold_for_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = folded(cluster(5, 4, 2), monkeypatch)
    written_out: Sketch = replace(sketch)
    assert sketch.symmetries
    assert all(is_symmetry(written_out, each) for each in sketch.symmetries)
    assert written_out.symmetries == find_symmetries(written_out)


def test_nodes_that_differ_have_no_sample() -> None:
    equal = cluster(4, 2, 2)
    assert sample_of(equal) is not None
    assert sample_of(cluster(4, 2, 2, nic_gb_per_s={(2, 1): 10.0})) is None
    assert sample_of(cluster(4, 2, 2, absent=frozenset({"n1/nic0"}))) is None
    racks = Network(1.7, NetworkLayout.RAILS, 10.0, racks=(2, 2), oversubscription=4.0)
    assert sample_of(replicate(virtual_machine(2, 2), 4, racks)) is None
    slower = tuple(
        replace(link, bandwidth_gb_per_s=1.0)
        if link.src == "n3/gpu0" and link.kind is LinkKind.NVLINK
        else link
        for link in equal.links
    )
    assert sample_of(replace(equal, links=slower)) is None
    assert sample_of(cluster(2, 2, 2)) is None
