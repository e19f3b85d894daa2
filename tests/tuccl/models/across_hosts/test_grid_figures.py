"""Bandwidths of the rails and nodes of a machine while all of them work."""

import math

import pytest

from lookup_tables.table import Shape
from probes.files.read import read_topology, shipped_machines
from probes.topology.graph import Topology
from probes.topology.replicate import Network, replicate
from tests.sketches.machines import cluster
from tests.synthesizer.plan.test_uneven_machines import Shape as Uneven
from tuccl.models.across_hosts.grid_figures import grid_figures


def a100(nodes: int) -> Topology:
    machine = read_topology(shipped_machines()["a100-8gpu-8nic"])
    return replicate(machine, nodes, Network(latency_us=2.0))


@pytest.mark.parametrize("nodes", [2, 5])
def test_a_rail_of_eight_has_a_nic_of_its_own(nodes: int) -> None:
    grid = grid_figures(a100(nodes))
    assert grid.machine.shape == Shape(8 * nodes, nodes, 8)
    assert grid.rail.shape == Shape(nodes, nodes, 1)
    assert grid.rail.nics_per_node == 1
    assert grid.rail.nic_gb_per_s == grid.rail_gb_per_s == pytest.approx(24.0), "PCIe's 24 GB/s"
    assert grid.rail.network_latency_us == pytest.approx(2.0)
    assert grid.node_gb_per_s == pytest.approx(300.0)
    assert grid.memory_gb_per_s == 1555.0


def test_rails_share_the_nic_of_their_node() -> None:
    grid = grid_figures(cluster(2, 4, 1))
    assert grid.rail.nic_gb_per_s == pytest.approx(24.0), "NCCL sees the NIC as if alone"
    assert grid.rail_gb_per_s == pytest.approx(24.0 / 4), "PCIe of the NIC is shared, too"
    assert grid.shared_rail.nic_gb_per_s == grid.rail_gb_per_s
    assert grid_figures(cluster(2, 4, 2)).rail_gb_per_s == pytest.approx(24.0 / 2)


def test_the_slowest_rail_counts_for_all() -> None:
    slow = cluster(3, 2, 2, nic_gb_per_s={(1, 1): 15.0})
    assert grid_figures(slow).rail_gb_per_s == pytest.approx(15.0)


def test_a_single_gpu_has_no_peers_in_its_node() -> None:
    assert grid_figures(cluster(2, 1, 1)).node_gb_per_s == math.inf


def test_a_node_whose_links_are_not_shared_has_figures() -> None:
    """Every pair of GPUs has an NVLink of its own."""
    grid = grid_figures(Uneven((3, 3), 1, "mesh").topology())
    assert grid.node_gb_per_s == pytest.approx(2 * 50.0)
