"""What pruning the network of a sketch is worth, and whose model of a NIC makes it so.

TuCCL (section III-B, table II) finds relays better than a full mesh, and blames synthesizers that
give every connection a fixed share of its NIC. Here every machine's sketches are synthesized for
twice, with NICs split that way and with NICs whose time is shared as it is used, and all schedules
are then timed alike, with shared NICs. `no relays` is the full mesh under the further rule that a
block goes straight to each GPU (the only ways in TACCL's shortest-path sets, where every remote GPU
is one hop): the all-pairs schedule.

    python scripts/bench_pruning.py [FILE.json#a100_2x8 ...]

Figures are size / time in GB/s, of schedules that synthesis has proved. `=` marks a sketch with the
same edges as one to its left. It takes some minutes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import permutations
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from probes.files.bench_topologies import bench_topology_reference, read_bench_topology  # noqa: E402
from probes.topology.graph import (  # noqa: E402
    NETWORK_NODE,
    Device,
    DeviceKind,
    Link,
    LinkKind,
    Provenance,
    Topology,
)
from sketches.candidates import sketch_candidates  # noqa: E402
from sketches.sketch import EdgeKind, Sketch  # noqa: E402
from synthesizer.experts import expert_algorithms  # noqa: E402
from synthesizer.ir.algorithm import Algorithm  # noqa: E402
from synthesizer.ir.collectives import Collective  # noqa: E402
from synthesizer.plan.synthesize import synthesize  # noqa: E402
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule  # noqa: E402

SIZES = {"1MB": 10**6, "64MB": 64 * 10**6}
COLLECTIVES = ("all_gather", "all_reduce", "alltoall")
SKETCHES = ("full_mesh", "pruned", "relay", "one_nic")
WIRES = ExecutionModel()


def v100(nodes: int, nics: int) -> Topology:
    """Nodes of four V100, NVLink between all, NICs of 12.5 GB/s shared by neighbours."""
    devices = [Device("fabric", DeviceKind.NETWORK_SWITCH, NETWORK_NODE)]
    links: list[Link] = []

    def cable(a: str, b: str, kind: LinkKind, gb_per_s: float, latency_us: float) -> None:
        links.extend(
            Link(src, dst, kind, gb_per_s, latency_us, Provenance.SPEC)
            for src, dst in ((a, b), (b, a))
        )

    for node in range(nodes):
        gpus = [f"n{node}g{index}" for index in range(4)]
        devices += [Device(name, DeviceKind.GPU, node, i) for i, name in enumerate(gpus)]
        for a, b in permutations(gpus, 2):
            links.append(Link(a, b, LinkKind.NVLINK, 50.0, 0.7, Provenance.SPEC))
        for index in range(nics):
            devices.append(Device(f"n{node}nic{index}", DeviceKind.NIC, node, index))
            cable(f"n{node}nic{index}", "fabric", LinkKind.NETWORK, 12.5, 0.85)
        for index, gpu in enumerate(gpus):
            cable(gpu, f"n{node}nic{index * nics // 4}", LinkKind.PCIE, 12.5, 0.0)
    return Topology(f"{nodes}x4 V100, {nics} NIC", tuple(devices), tuple(links))


def split_nics(sketch: Sketch) -> Sketch:
    """The sketch as TACCL sees it: a connection has its fixed part of each port on its way."""
    users = Counter(name for edge in sketch.edges for name in edge.ports)
    edges = tuple(
        replace(
            edge,
            bandwidth_gb_per_s=min(
                sketch.port[name].bandwidth_gb_per_s / users[name] for name in edge.ports
            ),
            ports=(),
        )
        if edge.kind is EdgeKind.NETWORK
        else edge
        for edge in sketch.edges
    )
    used = {name for edge in edges for name in edge.ports}
    return replace(
        sketch, edges=edges, ports=tuple(port for port in sketch.ports if port.name in used)
    )


def gb_per_s(algorithm: Algorithm, sketch: Sketch, size_bytes: int) -> float:
    """Size / time with shared NICs."""
    return size_bytes * 1e-3 / compile_schedule(algorithm, sketch).time_us(size_bytes, WIRES)


def no_relays(collective: Collective, mesh: Sketch, size_bytes: int) -> float | None:
    """The all-pairs schedule, where it is one of the expert algorithms."""
    figures = [
        gb_per_s(algorithm, mesh, size_bytes)
        for algorithm in expert_algorithms(collective, mesh)
        if "all_pairs" in algorithm.name
    ]
    return max(figures, default=None)


def row(topology: Topology, collective: Collective, size: str) -> str:
    """One cell: a figure per sketch and model."""
    sketches = {sketch.name: sketch for sketch in sketch_candidates(topology)}
    mesh = sketches.get("full_mesh", sketches["pruned"])
    direct = no_relays(collective, mesh, SIZES[size])
    cells = ["-" if direct is None else f"{direct:.2f}"]
    for name in SKETCHES:
        # The candidates hold each set of edges once; the pruned sketch comes first among them.
        sketch = mesh if name == "full_mesh" else sketches.get(name)
        if sketch is None or (name == "pruned" and sketch is mesh):
            cells += ["=", "="]
            continue
        for modelled in (split_nics(sketch), sketch):
            algorithm = synthesize(collective, modelled, SIZES[size]).algorithm
            cells.append(f"{gb_per_s(algorithm, sketch, SIZES[size]):.2f}")
    return f"| {topology.name} | {collective} | {size} | {' | '.join(cells)} |"


def main() -> None:
    """Prints a row per cell as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("entry", nargs="*", help="more machines, as FILE.json#entry")
    parser.add_argument("--op", action="append", choices=COLLECTIVES)
    given = parser.parse_args()
    machines = [v100(nodes, nics) for nics in (1, 2) for nodes in (2, 3)]
    for entry in given.entry:
        named = bench_topology_reference(entry)
        if named is None:
            parser.error(f"{entry} is no entry; give FILE.json#entry")
        machines.append(read_bench_topology(*named).topology)
    heads = [f"{name}, {model}" for name in SKETCHES for model in ("split", "shared")]
    print(f"| machine | operation | size | no relays | {' | '.join(heads)} |")
    print("|---|---|---:|" + "---:|" * (1 + len(heads)))
    started = time.process_time()
    for topology in machines:
        for collective in given.op or COLLECTIVES:
            for size in SIZES:
                print(row(topology, Collective(collective), size), flush=True)
    print(f"\n{time.process_time() - started:.0f} s of one core")


if __name__ == "__main__":
    main()
