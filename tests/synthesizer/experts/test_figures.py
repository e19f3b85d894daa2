"""Latency and bus bandwidth of the expert algorithms on the shipped machines, computed by hand.

B is a GPU's bandwidth through NVLink in each direction (A100 300 GB/s, H200 450), b = 24 that
through its NIC (limited by PCIe, not by the NIC's 25), N the number of ranks, M the size. The bus
bandwidth is (N-1)/N * M / time, twice that for all_reduce.
"""

from __future__ import annotations

from functools import cache

import pytest

from lookup_tables.collective import Collective
from probes.files.read import read_topology, shipped_machines
from probes.topology.replicate import Network, NetworkLayout, replicate
from sketches.candidates import sketch_candidates
from sketches.sketch import Sketch
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Algorithm
from tests.synthesizer.proofs import busbw_gb_per_s, latency_us

NVLINK_US = 0.7
NETWORK_US = 2.0 + 4 * 0.1
"""Latency of the network, and of PCIe: GPU to switch to NIC at each end."""


@cache
def sketch_of(machine: str, nodes: int) -> Sketch:
    topology = read_topology(shipped_machines()[machine])
    if nodes > 1:
        topology = replicate(topology, nodes, Network(2.0, NetworkLayout.RAILS))
    return sketch_candidates(topology)[0]


A100 = ("a100-8gpu-8nic", 1)
PAIR = ("a100-8gpu-8nic", 2)
H200 = ("h200-4gpu", 1)

FIGURES = {
    # One step, every block through a port once: B; the whole buffer 7 times: 2 * 7/8 / 7 of B.
    (A100, "all_gather_all_pairs"): (NVLINK_US, 300.0),
    (A100, "reduce_scatter_all_pairs"): (NVLINK_US, 300.0),
    (A100, "all_reduce_all_pairs_one_phase"): (NVLINK_US, 2 / 8 * 300),
    (A100, "all_reduce_all_pairs_two_phase"): (2 * NVLINK_US, None),
    # N-1 steps twice; on two nodes 14 of 16 hops are inside, and 8 rings of b each.
    (A100, "all_reduce_ring_1x"): (14 * NVLINK_US, None),
    (PAIR, "all_gather_ring_8x"): (13 * NVLINK_US + 2 * NETWORK_US, 8 * 24.0),
    # An inner rank takes the buffer twice from below and once from above: M * 3 / B.
    (A100, "all_reduce_tree_8c"): (6 * NVLINK_US, 2 * 7 / 8 * 300 / 3),
    # log2(N) steps; every block passes a port once, as in a ring: B.
    (A100, "all_gather_recursive_doubling"): (3 * NVLINK_US, 300.0),
    (H200, "all_gather_recursive_doubling"): (2 * NVLINK_US, 450.0),
    (A100, "reduce_scatter_recursive_halving"): (3 * NVLINK_US, 300.0),
    (H200, "reduce_scatter_recursive_halving"): (2 * NVLINK_US, 450.0),
    (A100, "all_reduce_recursive_halving_doubling"): (6 * NVLINK_US, 300.0),
    (H200, "all_reduce_recursive_halving_doubling"): (4 * NVLINK_US, 450.0),
    # The whole buffer in each of log2(N) steps: M * 3 / B, and 2 * 7/8 / 3 of B.
    (A100, "all_reduce_recursive_doubling"): (3 * NVLINK_US, 175.0),
    (H200, "all_reduce_recursive_doubling"): (2 * NVLINK_US, 2 * 3 / 4 * 450 / 2),
    # Up and down three levels. An inner rank of one tree takes two halves from below and one from
    # above, and another one as a leaf of the other tree: M * 2 / B.
    (A100, "all_reduce_double_tree_8c"): (6 * NVLINK_US, 2 * 7 / 8 * 300 / 2),
    # With four ranks the busiest takes three halves: M * 1.5 / B.
    (H200, "all_reduce_double_tree_8c"): (4 * NVLINK_US, 2 * 3 / 4 * 450 / 1.5),
    (A100, "alltoall_all_pairs"): (NVLINK_US, 300.0),
    # On two nodes one block of 16 crosses per NIC and 14 come through NVLink, which takes longer
    # (14/16 / 300 against 1/16 / 24).
    (PAIR, "all_gather_recursive_doubling"): (NETWORK_US + 3 * NVLINK_US, 15 / 14 * 300),
    (PAIR, "reduce_scatter_recursive_halving"): (NETWORK_US + 3 * NVLINK_US, 15 / 14 * 300),
    (PAIR, "all_gather_hierarchical_4c"): (NETWORK_US + NVLINK_US, 15 / 14 * 300),
    (PAIR, "all_reduce_hierarchical_4c"): (2 * (NETWORK_US + NVLINK_US), 15 / 14 * 300),
    # The whole buffer goes through each NIC: 2 * 15/16 of b.
    (PAIR, "all_reduce_recursive_doubling"): (NETWORK_US + 3 * NVLINK_US, 45.0),
    (PAIR, "all_reduce_two_step"): (NETWORK_US + NVLINK_US, 45.0),
    # Each tree crosses once each way, with half the buffer on a NIC of its own.
    (PAIR, "all_reduce_double_tree_8c"): (None, 90.0),
    # An eighth of the buffer crosses per NIC; 7/8 go through NVLink twice, which takes longer.
    (PAIR, "all_reduce_three_step"): (NETWORK_US + 2 * NVLINK_US, 15 / 14 * 300),
    # Half of the blocks cross, one way: 15/16 * 2 of b.
    (PAIR, "alltoall_two_step"): (NETWORK_US + NVLINK_US, 45.0),
}


@cache
def experts(machine: tuple[str, int], collective: Collective) -> dict[str, Algorithm]:
    found = expert_algorithms(collective, sketch_of(*machine))
    return {algorithm.name: algorithm for algorithm in found}


@pytest.mark.long
@pytest.mark.parametrize(
    ("machine", "name"), FIGURES, ids=[f"{m[0]}-{m[1]}-{name}" for m, name in FIGURES]
)
def test_latency_and_bandwidth_are_as_worked_out(machine: tuple[str, int], name: str) -> None:
    right_us, right_gb_per_s = FIGURES[machine, name]
    operations = ("all_gather", "all_reduce", "alltoall", "reduce_scatter")
    collective = next(Collective.named(found) for found in operations if name.startswith(found))
    sketch, algorithm = sketch_of(*machine), experts(machine, collective)[name]
    if right_us is not None:
        assert latency_us(algorithm, sketch) == pytest.approx(right_us, rel=1e-3)
    if right_gb_per_s is not None:
        assert busbw_gb_per_s(algorithm, sketch) == pytest.approx(right_gb_per_s, rel=0.01)
