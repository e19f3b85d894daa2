"""Machines of the benchmark's shapes with GPUs, NICs and links missing, from topology to result."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from probes.topology.graph import NETWORK_NODE, Device, DeviceKind, LinkKind, Topology
from sketches.candidates import sketch_candidates
from synthesizer.ir.algorithm import Algorithm
from synthesizer.plan.synthesize import SynthesisOptions, synthesize
from synthesizer.prove.verifier import verify
from tests.sketches.machines import Cable, machine
from tests.synthesizer.emulator import expected_outputs, run
from tuccl.errors import MachineError

COLLECTIVES = (
    Collective.ALL_GATHER,
    Collective.REDUCE_SCATTER,
    Collective.ALL_REDUCE,
    Collective.ALLTOALL,
)
QUICK = SynthesisOptions(time_limit_s=0.2, gap=0.1)


@dataclass(frozen=True)
class Shape:
    gpus: tuple[int, ...]
    """GPUs of each node."""
    nics: int
    """NICs of every node; GPU i is attached to NIC i modulo this."""
    cabling: str
    """NVLink cabling: `switch`, `mesh` (every pair) or `ring`."""

    def topology(self) -> Topology:
        devices, cables = [], []
        for node, gpus in enumerate(self.gpus):
            names = [f"n{node}g{i}" for i in range(gpus)]
            devices += [Device(name, DeviceKind.GPU, node, i) for i, name in enumerate(names)]
            cables += self._nvlink(node, names)
            if self.cabling == "switch":
                devices.append(Device(f"n{node}nvs", DeviceKind.NVSWITCH, node))
            for i in range(self.nics):
                devices.append(Device(f"n{node}nic{i}", DeviceKind.NIC, node, i))
                cables.append((f"n{node}nic{i}", "fabric", LinkKind.NETWORK, 12.5, 0.85))
            for i, name in enumerate(names if self.nics else ()):
                cables.append((name, f"n{node}nic{i % self.nics}", LinkKind.PCIE, 12.5, 0.0))
        if self.nics:
            devices.append(Device("fabric", DeviceKind.NETWORK_SWITCH, NETWORK_NODE))
        return machine("uneven", devices, cables)

    def _nvlink(self, node: int, names: list[str]) -> list[Cable]:
        if self.cabling == "switch":
            return [(name, f"n{node}nvs", LinkKind.NVLINK, 300.0, 0.35) for name in names]
        pairs = list(combinations(names, 2))
        if self.cabling == "ring":
            pairs = list(zip(names, names[1:] + names[:1], strict=True))
        return [(a, b, LinkKind.NVLINK, 50.0, 0.7) for a, b in pairs]


SHAPES = (
    Shape((5,), 0, "ring"),
    Shape((4,), 0, "switch"),
    Shape((3, 3), 3, "switch"),
    Shape((4, 2), 1, "mesh"),
    Shape((3, 4), 2, "mesh"),
    Shape((2, 1, 3), 2, "switch"),
)
LARGE_SHAPES = (
    Shape((8, 8), 8, "switch"),
    Shape((8, 6), 4, "mesh"),
    Shape((4, 4, 4), 2, "mesh"),
    Shape((12,), 0, "ring"),
)


@st.composite
def damaged(draw: st.DrawFn, shapes: tuple[Shape, ...]) -> Topology:
    """Draw a machine without some devices and cables; a cable has both directions of a link."""
    whole = draw(st.sampled_from(shapes)).topology()
    names = [device.name for device in whole.devices]
    gone = draw(st.sets(st.sampled_from(names), max_size=2))
    cables = sorted({tuple(sorted((link.src, link.dst))) for link in whole.links})
    cut = draw(st.sets(st.sampled_from(cables), max_size=4))
    note(f"without {sorted(gone)} and {sorted(cut)}")
    return Topology(
        "uneven",
        tuple(device for device in whole.devices if device.name not in gone),
        tuple(
            link
            for link in whole.links
            if gone.isdisjoint((link.src, link.dst))
            and tuple(sorted((link.src, link.dst))) not in cut
        ),
    )


def transfer_graph(topology: Topology) -> nx.DiGraph[str]:
    """Return the possible transfers: NICs send to and receive from the network, GPUs relay."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(gpu.name for gpu in topology.gpus)
    nics = {nic.name for nic in topology.nics}
    for link in topology.links:
        side = "out" if link.kind is LinkKind.NETWORK and link.src in nics else "in"
        if link.kind is LinkKind.PCIE:
            side = "out" if link.dst in nics else "in"
        ends = (f"{end} {side}" if end in nics else end for end in (link.src, link.dst))
        graph.add_edge(*ends)
    return graph


def gives_right_integers(algorithm: Algorithm) -> None:
    inputs = [
        np.arange(gpu.input_chunks * 2, dtype=np.int64) * 7 + 1000 * gpu.rank
        for gpu in algorithm.programs
    ]
    outputs = run(algorithm, inputs, slots=1, seed=5)
    for got, wanted in zip(outputs, expected_outputs(algorithm.collective, inputs), strict=True):
        np.testing.assert_array_equal(got, wanted)


def holds(topology: Topology, collective: Collective, pick: int, size_bytes: int) -> None:
    """Check for right results, or for an error that names two unconnected ranks."""
    try:
        sketches = sketch_candidates(topology)
    except MachineError as error:
        reason = str(error)
    else:
        algorithm = synthesize(
            collective, sketches[pick % len(sketches)], size_bytes, QUICK
        ).algorithm
        assert algorithm.ranks == len(topology.gpus)
        assert verify(algorithm, slots=1).describe() == "proved"
        gives_right_integers(algorithm)
        return
    if len(topology.gpus) < 2:
        assert f"has {len(topology.gpus)} GPU(s)" in reason
        return
    named = re.search(r"no path from rank \d+ \((\w+)\) to rank \d+ \((\w+)\)", reason)
    assert named, reason
    assert not nx.has_path(transfer_graph(topology), *named.groups()), reason


CASES = (st.sampled_from(COLLECTIVES), st.integers(0, 3), st.sampled_from([4096, 1 << 26]))


@pytest.mark.long
@given(damaged(SHAPES), *CASES)
def test_a_damaged_machine_gets_right_results_or_a_gap_is_named(
    topology: Topology, collective: Collective, pick: int, size_bytes: int
) -> None:
    holds(topology, collective, pick, size_bytes)


@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged(SHAPES + LARGE_SHAPES), *CASES)
def test_damaged_machines_of_sixteen_gpus(
    topology: Topology, collective: Collective, pick: int, size_bytes: int
) -> None:
    holds(topology, collective, pick, size_bytes)
