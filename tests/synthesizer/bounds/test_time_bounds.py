"""Bounds against hand-worked figures, published ones, and every expert schedule."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import COLLECTIVES, Collective
from sketches.candidates import whole_machine
from sketches.sketch import Port, Sketch
from sketches.symmetry import find_symmetries
from synthesizer.bounds.time_bounds import (
    algbw_bound_gb_per_s,
    latency_bound_us,
    time_bound,
)
from synthesizer.experts import expert_algorithms
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule
from tests.shared_data import requires_shared_data
from tests.sketches.machines import bench_topologies, cluster
from tests.synthesizer.hand_sketches import direct, hybrid_cube_mesh, switched, torus


def test_nodes_exchange_what_they_would_as_single_ranks() -> None:
    """NVSwitches do not bypass the NICs: 2 * 15 buffers leave 16 nodes of 8 NICs each."""
    sketch = switched(16, 8, nvlink_gb_per_s=450.0, nic_gb_per_s=50.0)
    expected = 16 * 8 * 50.0 / (2 * 15)
    assert algbw_bound_gb_per_s(Collective.ALL_REDUCE, sketch) == pytest.approx(expected)


def test_a_switch_gives_every_rank_its_port_and_no_more() -> None:
    sketch = switched(1, 8)
    expected = {
        Collective.ALL_GATHER: 300 * 8 / 7,
        Collective.REDUCE_SCATTER: 300 * 8 / 7,
        Collective.ALLTOALL: 300 * 8 / 7,
        Collective.ALL_REDUCE: 300 * 8 / 14,
        Collective.BROADCAST: 300,
        Collective.REDUCE: 300,
    }
    for collective, bandwidth in expected.items():
        assert algbw_bound_gb_per_s(collective, sketch) == pytest.approx(bandwidth)
        assert latency_bound_us(collective, sketch) == pytest.approx(0.7)


def test_two_nodes_are_bound_by_the_nics_between_them() -> None:
    sketch = switched(2, 8)
    # 64 pairs each way over 8 NICs of 25 GB/s; a broadcast can use all 8 NICs.
    assert algbw_bound_gb_per_s(Collective.ALLTOALL, sketch) == pytest.approx(16 * 200 / 64)
    assert algbw_bound_gb_per_s(Collective.BROADCAST, sketch, root=3) == pytest.approx(200)
    # All ports of all GPUs together: 16 * (300 + 25) for 15 copies.
    assert algbw_bound_gb_per_s(Collective.ALL_GATHER, sketch) == pytest.approx(16 * 325 / 15)
    assert latency_bound_us(Collective.ALL_GATHER, sketch) == pytest.approx(0.7 + 1.7)


def test_meshes_match_the_figures_of_the_literature() -> None:
    # ForestColl's optimum for DGX-1, and the flow bounds of its all_reduce and alltoall.
    mesh = hybrid_cube_mesh()
    assert algbw_bound_gb_per_s(Collective.ALL_GATHER, mesh) == pytest.approx(150 * 8 / 7)
    assert algbw_bound_gb_per_s(Collective.ALL_REDUCE, mesh) == pytest.approx(150 * 8 / 14)
    assert algbw_bound_gb_per_s(Collective.ALLTOALL, mesh) == pytest.approx(8 * 150 / 16)
    square = torus(4)
    assert algbw_bound_gb_per_s(Collective.ALL_GATHER, square) == pytest.approx(200 * 16 / 15)
    assert algbw_bound_gb_per_s(Collective.ALLTOALL, square) == pytest.approx(100)


def test_alltoall_exchanges_no_more_than_flows_between_all_pairs_allow() -> None:
    """Two hubs of three ranks, and a rank beside the first hub, on a wide link.

    Between pairs of {0, 1, 2, 3, 4} lie 12 links and 28 hops; from and to rank 5 there are 10 more
    over these links. So each carries 38 / 12 units. No cut has more than 9 units for 3 links, and
    all links together, with the wide one, carry far more than all hops.
    """
    spokes = dict.fromkeys([(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)], 38.0)
    sketch = direct(6, {**spokes, (0, 5): 1000.0})
    assert algbw_bound_gb_per_s(Collective.ALLTOALL, sketch) == pytest.approx(6 * 38 * 12 / 38)


def test_a_torus_without_a_link_exchanges_at_most_seven_eighths() -> None:
    """The links of a 4x4 torus carry 100 GB/s of alltoall; without one, all others together 96.1.

    Links beside the missing one carry its pairs as well: the linear program's optimum is 87.5.
    """
    sketch = torus(4)
    kept = tuple(edge for edge in sketch.edges if {edge.src, edge.dst} != {0, 1})
    less = replace(sketch, edges=kept, symmetries=find_symmetries(replace(sketch, edges=kept)))
    assert algbw_bound_gb_per_s(Collective.ALLTOALL, less) == pytest.approx(87.5)


def test_a_narrow_way_to_one_rank_bounds_what_it_must_get() -> None:
    line = direct(3, {(0, 1): 40.0, (1, 2): 10.0})
    assert algbw_bound_gb_per_s(Collective.ALL_GATHER, line) == pytest.approx(3 * 10 / 2)
    assert algbw_bound_gb_per_s(Collective.BROADCAST, line) == pytest.approx(10)
    assert algbw_bound_gb_per_s(Collective.REDUCE, line, root=1) == pytest.approx(10)
    assert latency_bound_us(Collective.BROADCAST, line, root=1) == pytest.approx(0.7)
    # All bytes over the narrow link, between an alpha before and one after.
    bound = time_bound(Collective.BROADCAST, line)
    assert bound.time_us(10**9) == pytest.approx(1e5 + 1.4, abs=1e-3)
    assert bound.time_us(8) == pytest.approx(1.4 + 8e-3 / 10)


def test_of_two_ports_one_behind_the_other_the_narrow_one_counts() -> None:
    both_ways = direct(2, {(0, 1): 25.0, (1, 0): 25.0})
    edges = tuple(
        replace(edge, ports=(f"tx{edge.src}", f"pcie{edge.src}")) for edge in both_ways.edges
    )
    ports = tuple(
        Port(f"{kind}{rank}", gb_per_s)
        for rank in range(2)
        for kind, gb_per_s in (("tx", 25.0), ("pcie", 24.0))
    )
    sketch = replace(both_ways, edges=edges, ports=ports, symmetries=())
    # Half of the output reaches each rank over 24 GB/s.
    assert algbw_bound_gb_per_s(Collective.ALL_GATHER, sketch) == pytest.approx(48.0)


def test_a_custom_collective_has_no_bound() -> None:
    assert algbw_bound_gb_per_s(Collective.CUSTOM, torus(3)) == math.inf
    assert time_bound(Collective.CUSTOM, torus(3)).time_us(1 << 20) == 0


@requires_shared_data
@pytest.mark.parametrize("name", bench_topologies())
def test_all_gather_bounds_of_the_benchmark_machines(name: str) -> None:
    topology, expected = bench_topologies()[name]
    sketch = whole_machine(topology)
    for collective in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER):
        assert algbw_bound_gb_per_s(collective, sketch) == pytest.approx(expected, rel=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_symmetries_change_no_bound(collective: Collective) -> None:
    for sketch in (hybrid_cube_mesh(), switched(2, 4, rotations=False), torus(3)):
        symmetric = replace(sketch, symmetries=find_symmetries(sketch))
        assert symmetric.symmetries
        assert algbw_bound_gb_per_s(collective, symmetric) == pytest.approx(
            algbw_bound_gb_per_s(collective, sketch)
        )
        assert latency_bound_us(collective, symmetric) == latency_bound_us(collective, sketch)
        for size in (1 << 10, 1 << 16, 1 << 30):
            assert time_bound(collective, symmetric).time_us(size) == pytest.approx(
                time_bound(collective, sketch).time_us(size)
            )


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_many_nodes_are_bounded_by_their_nics(collective: Collective) -> None:
    sketch = switched(12, 8)
    per_node = 8 * 25.0
    expected = {
        Collective.ALL_GATHER: per_node * 96 / 88,
        Collective.REDUCE_SCATTER: per_node * 96 / 88,
        Collective.ALLTOALL: per_node * 96 / (8 * 88),
        Collective.BROADCAST: per_node,
        Collective.REDUCE: per_node,
    }
    bound = algbw_bound_gb_per_s(collective, sketch, root=5)
    if collective is Collective.ALL_REDUCE:
        assert per_node / 2 <= bound <= per_node
    else:
        assert bound == pytest.approx(expected[collective])


MODELS = (
    ExecutionModel(),
    ExecutionModel(slot_bytes=1 << 17),
    ExecutionModel(0.3, 20.0, 0.5, 1 << 15, 4, 5.0),
)
SKETCHES: dict[str, Sketch] = {
    "switch": switched(1, 4),
    "nodes": switched(2, 4),
    "mesh": hybrid_cube_mesh(),
    "torus": torus(3),
    "shared_nic": whole_machine(cluster(2, 4, 2)),
}


@pytest.mark.long
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("name", SKETCHES)
def test_no_expert_schedule_beats_the_bound(name: str, collective: Collective) -> None:
    sketch = SKETCHES[name]
    bound = time_bound(collective, sketch)
    for algorithm in expert_algorithms(collective, sketch):
        compiled = compile_schedule(algorithm, sketch)
        for model in MODELS:
            for size in (1 << 10, 1 << 20, 1 << 30):
                least_us = bound.time_us(size) * (1 - 1e-6)
                assert compiled.time_us(size, model) >= least_us, algorithm.name


@pytest.mark.long
@given(
    links=st.dictionaries(
        st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(lambda pair: pair[0] < pair[1]),
        st.sampled_from([10.0, 25.0, 50.0]),
    )
)
def test_an_extra_link_never_lowers_a_bound(links: dict[tuple[int, int], float]) -> None:
    ring = {(rank, rank + 1): 25.0 for rank in range(4)}
    poorer, richer = direct(5, ring), direct(5, {**links, **ring})
    for collective in (Collective.ALL_GATHER, Collective.ALL_REDUCE, Collective.BROADCAST):
        less = algbw_bound_gb_per_s(collective, poorer)
        assert algbw_bound_gb_per_s(collective, richer) >= less * (1 - 1e-6)
        assert latency_bound_us(collective, richer) <= latency_bound_us(collective, poorer)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_rank_without_any_link_gives_a_bound_of_nothing(collective: Collective) -> None:
    lonely = direct(3, {(0, 1): 10.0})
    assert algbw_bound_gb_per_s(collective, lonely) == pytest.approx(0.0, abs=1e-9)
    assert latency_bound_us(collective, lonely) >= 0.0
