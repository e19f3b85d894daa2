"""The paper's machines and measures in `scripts/bench/paper.py`, worked by hand."""

from __future__ import annotations

import math

import pytest
from paper import TABLE_III, recorded_gains, utilisation
from paper_clusters import DEFAULT, clusters, configured, table_iv

from lookup_tables.collective import Collective
from lookup_tables.provenance import Provenance
from lookup_tables.table import Shape
from probes.topology.graph import Topology
from sketches.candidates import sketch_candidates
from sketches.sketch import EdgeKind, Sketch
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Algorithm
from tuccl.measuring.records.record import make_record
from tuccl.models.figures import communicator_shape, machine_figures
from tuccl.schedules.candidates import Candidate
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.search.trials.timing import Timing
from tuccl.workspace.measurement_lines import Recorded

CLUSTERS = {topology.name: topology for topology in clusters()}
MB = 1_000_000


def all_pairs(topology: Topology) -> tuple[Algorithm, Sketch]:
    sketches = {sketch.name: sketch for sketch in sketch_candidates(topology)}
    mesh = sketches.get("full_mesh", next(iter(sketches.values())))
    algorithms = expert_algorithms(Collective.ALL_GATHER, mesh)
    return next(each for each in algorithms if each.name == "all_gather_all_pairs"), mesh


def task(topology: Topology, size_bytes: int) -> Task:
    return Task(Collective.ALL_GATHER, size_bytes, communicator_shape(topology))


def test_the_clusters_have_the_printed_links() -> None:
    ranks = {"1 x 4 V100": 4, "2 x 4 V100": 8, "3 x 4 V100": 12}
    ranks |= {"1 x 4 A100": 4, "1 x 8 A100": 8, "2 x 4 A100": 8, "2 x 8 A100": 16}
    assert {name: len(topology.gpus) for name, topology in CLUSTERS.items()} == ranks
    v100, a100 = (machine_figures(CLUSTERS[name]) for name in ("3 x 4 V100", "2 x 8 A100"))
    # Half of 300 GB/s in both directions; 300 GB/s to the switches.
    assert (v100.intra_gb_per_s, v100.nics_per_node, v100.nic_gb_per_s) == (150.0, 2, 12.5)
    assert (a100.intra_gb_per_s, a100.nics_per_node, a100.nic_gb_per_s) == (300.0, 4, 12.5)


@pytest.mark.parametrize(
    ("cluster", "connections"),
    [
        ("3 x 4 V100", {"full_mesh": 96, "pruned": 48, "relay": 12}),
        ("2 x 8 A100", {"full_mesh": 128, "pruned": 32, "relay": 8}),
    ],
)
def test_pruning_leaves_out_half_of_the_connections_and_more(
    cluster: str, connections: dict[str, int]
) -> None:
    # Three hosts of four on V100: 6 ordered pairs of hosts with 16 pairs of GPUs each.
    found = {
        sketch.name: sum(edge.kind is EdgeKind.NETWORK for edge in sketch.edges)
        for sketch in sketch_candidates(CLUSTERS[cluster])
    }
    assert connections.items() <= found.items()


def test_links_are_used_for_their_bytes_over_their_bandwidth() -> None:
    # 40 MB on four V100: 10 MB over each of 12 NVLink ways of 50 GB/s take 200 of 400 us.
    topology = CLUSTERS["1 x 4 V100"]
    algorithm, mesh = all_pairs(topology)
    everywhere, network = utilisation(algorithm, mesh, mesh, task(topology, 40 * MB), 400.0)
    assert everywhere == pytest.approx(50.0)
    assert math.isnan(network)


def test_blocks_that_go_straight_to_each_gpu_pass_a_nic_several_times() -> None:
    # 8 MB on two hosts of four: each of two ranks at a NIC sends its 1 MB to four GPUs, 8 MB over
    # 12.5 GB/s, 640 of 1280 us. Each of 24 NVLink ways carries 1 MB in 20 us.
    topology = CLUSTERS["2 x 4 V100"]
    algorithm, mesh = all_pairs(topology)
    everywhere, network = utilisation(algorithm, mesh, mesh, task(topology, 8 * MB), 1280.0)
    assert network == pytest.approx(50.0)
    assert everywhere == pytest.approx((8 * 50.0 + 24 * 100 * 20 / 1280) / 32)


def test_the_space_is_table_iv_and_holds_the_default() -> None:
    algorithm, mesh = all_pairs(CLUSTERS["1 x 4 V100"])
    candidate = Candidate(algorithm, mesh, "default")
    space = table_iv([candidate])
    assert space.size == 3 * 5 * 20 * 15
    assert configured(candidate, DEFAULT) in space
    assert TABLE_III["C0"] == ("full mesh", DEFAULT.nchannels, DEFAULT.buffer_bytes >> 20)


def test_a_record_gives_each_arm_its_best() -> None:
    topology = CLUSTERS["1 x 4 V100"]
    key = task(topology, MB)
    samples_us = {
        STOCK: 60.0,
        Config("ring", "LL", 4): 50.0,
        Config("schedule:a", "Simple", 16, 512, 1 << 22): 40.0,
        Config("schedule:a", "Simple", 8, 512, 1 << 22): 30.0,
        Config("schedule:a", "LL", 16, 512, 1 << 22): 45.0,
        Config("schedule:a", "LL", 16, 256, 1 << 22): 20.0,
    }
    rows = [Recorded(key, config, (us,) * 3, unasked_s=0.1) for config, us in samples_us.items()]
    record = make_record(topology, Shape(4, 1, 4), Provenance("nccl"), Timing(), rows)
    frame = recorded_gains(record)
    # The schedule's first parameters, the most channels and 512 threads, give 40 us.
    assert frame["sketch"].tolist()[0].startswith("1.50 ")
    assert frame["configuration"].tolist()[0].startswith("1.20 ")
    assert frame["joint"].tolist()[0].startswith("3.00 ")
