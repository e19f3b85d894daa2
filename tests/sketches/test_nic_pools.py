from __future__ import annotations

from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from probes.topology.graph import DeviceKind, LinkKind, Topology
from probes.topology.replicate import Network, NetworkLayout, replicate
from sketches.candidates import sketch_candidates, whole_machine
from sketches.nic_pools import nic_pools
from sketches.sketch import EdgeKind
from synthesizer.bounds.time_bounds import algbw_bound_gb_per_s, time_bound
from synthesizer.experts import expert_algorithms
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule
from tests.sketches.machines import cluster, devices, half_known, machine, virtual_machine


def _pair(gpus: int, nics: int, gb_per_s: float = 12.5) -> Topology:
    layout = NetworkLayout.RAILS
    return replicate(virtual_machine(gpus, nics), 2, Network(1.7, layout, gb_per_s))


def test_nics_that_the_same_gpus_reach_are_one_pool() -> None:
    apart = nic_pools(cluster(2, 4, 2))
    assert [(pool.nics, pool.ranks) for pool in apart[:2]] == [
        (("n0/nic0",), (0, 1)),
        (("n0/nic1",), (2, 3)),
    ]
    together = nic_pools(_pair(2, 3))
    assert [(pool.nics, pool.ranks) for pool in together] == [
        (("n0/nic0", "n0/nic1", "n0/nic2"), (0, 1)),
        (("n1/nic0", "n1/nic1", "n1/nic2"), (2, 3)),
    ]


def test_a_gpu_without_a_known_way_counts_with_all_nics() -> None:
    parts = [*devices(0, DeviceKind.GPU, 2), *devices(0, DeviceKind.NIC, 2)]
    (pool,) = nic_pools(machine("silent", parts, []))
    assert (pool.nics, pool.ranks) == (("n0/nic0", "n0/nic1"), (0, 1))


def test_all_nics_of_a_node_carry_also_those_that_no_gpu_is_bound_to() -> None:
    # 2 GPUs behind 12 GB/s of PCIe each, 3 NICs of 2 GB/s: bindings would leave one idle.
    whole = whole_machine(_pair(2, 3, 2.0))
    assert whole.port["tx:n0/nic0..n0/nic2"].bandwidth_gb_per_s == 6.0
    edge = whole.edge[0, 3]
    assert (edge.kind, edge.bandwidth_gb_per_s) == (EdgeKind.NETWORK, 6.0)
    assert edge.alpha_us == pytest.approx(0.2 + 1.7 + 0.2)
    assert "tx:n0/nic0..n0/nic2" in edge.ports
    bound = algbw_bound_gb_per_s(Collective.BROADCAST, whole)
    assert bound == pytest.approx(6.0)


@pytest.mark.parametrize("layout", list(NetworkLayout))
def test_what_leaves_a_rack_passes_the_links_of_its_leaf_switches(layout: NetworkLayout) -> None:
    """Two racks of two nodes with two NICs of 10 GB/s each, 40 GB/s together; 4:1."""
    network = Network(1.7, layout, 10.0, racks=(2, 2), oversubscription=4.0)
    whole = whole_machine(replicate(virtual_machine(2, 2), 4, network))
    assert not any(port.startswith("racks:") for port in whole.edge[0, 2].ports), "one rack"
    # What leaves the first of two racks enters the second, so one port says both.
    (crossing,) = (port for port in whole.edge[0, 4].ports if port.startswith("racks:"))
    assert whole.port[crossing].bandwidth_gb_per_s == pytest.approx(10.0)
    assert whole.edge[0, 4].bandwidth_gb_per_s == pytest.approx(10.0)
    # Half of the data of each of four ranks leaves a rack.
    bound = time_bound(Collective.ALLTOALL, whole).time_us(1 << 30)
    assert bound == pytest.approx(4 * (1 << 30) / 2 / 10e3, rel=1e-3)


def test_a_nic_sends_no_faster_than_its_host_feeds_it() -> None:
    whole = whole_machine(_pair(2, 2, 25.0))
    assert whole.port["tx:n0/nic0..n0/nic1"].bandwidth_gb_per_s == 24.0
    # The GPU's own link to the CPU is on every path to every NIC.
    assert whole.edge[0, 2].bandwidth_gb_per_s == 12.0
    assert "pcie:n0/gpu0>n0/cpu0" in whole.edge[0, 2].ports


def test_pools_exchange_what_the_nics_on_common_rails_carry() -> None:
    pair = _pair(2, 2, 5.0)
    cut = tuple(
        link
        for link in pair.links
        if link.kind is not LinkKind.NETWORK or "n1/nic1" not in (link.src, link.dst)
    )
    whole = whole_machine(replace(pair, links=cut))
    assert whole.edge[0, 2].bandwidth_gb_per_s == 5.0
    assert whole.port["tx:n0/nic0..n0/nic1"].bandwidth_gb_per_s == 10.0


@pytest.mark.long
@pytest.mark.parametrize(
    "topology",
    [
        cluster(2, 4, 2),
        cluster(2, 2, 4, rails_only=True),
        _pair(2, 3),
        _pair(4, 2),
        _pair(2, 6),
        half_known(),
    ],
    ids=lambda topology: f"{len(topology.gpus)}gpus{len(topology.nics)}nics",
)
def test_no_candidate_is_better_than_the_whole_machine(topology: Topology) -> None:
    whole = whole_machine(topology)
    for sketch in sketch_candidates(topology):
        for pair, edge in sketch.edge.items():
            assert edge.bandwidth_gb_per_s <= whole.edge[pair].bandwidth_gb_per_s
            assert edge.alpha_us >= whole.edge[pair].alpha_us - 1e-9
        for collective in (Collective.ALL_GATHER, Collective.ALLTOALL, Collective.BROADCAST):
            for algorithm in expert_algorithms(collective, sketch):
                compiled = compile_schedule(algorithm, sketch)
                for size_bytes in (1 << 10, 1 << 30):
                    bound_us = time_bound(collective, whole).time_us(size_bytes)
                    assert compiled.time_us(size_bytes, ExecutionModel()) >= bound_us * (1 - 1e-6)
