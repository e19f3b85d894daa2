#!/usr/bin/env python3
"""Which candidates across hosts win at which size, in the model, on machines that are not even.

    scripts/bench/bench_across_hosts.py [--machines ndv2,slow_rail] [--operations all_gather]

Candidates are those of `tuccl init`; each is timed under the best of its parameters by the model
of the simulated backend, without noise. `nccl` is stock NCCL, `plan` the best plan of phases,
`expert` the best expert algorithm in rounds, `searched` the best schedule that was synthesized on a
sketch. Of these three only what is near the fastest is a candidate; times are us. `gain` is the
best of the others over `searched`. `search s` are seconds by the clock to make the candidates.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lookup_tables.collective import COLLECTIVES, Collective, parse_collective  # noqa: E402
from probes.topology.graph import (  # noqa: E402
    Device,
    DeviceKind,
    Link,
    LinkKind,
    Provenance,
    Topology,
)
from probes.topology.replicate import Network, NetworkLayout, replicate  # noqa: E402
from sketches.candidates import whole_machine  # noqa: E402
from tuccl.crew.pool import Workers, worker_processes  # noqa: E402
from tuccl.measuring.backends.simulated import SimulatedBackend  # noqa: E402
from tuccl.models.figures import communicator_shape  # noqa: E402
from tuccl.quantities import format_size, parse_size  # noqa: E402
from tuccl.schedules.candidates import Candidate  # noqa: E402
from tuccl.schedules.executor_schedules import executor_space  # noqa: E402
from tuccl.schedules.staged_candidates import (  # noqa: E402
    RoundsRequest,
    candidates_across_hosts,
)
from tuccl.search.trials.config import STOCK, Config, Task  # noqa: E402

KINDS = ("plan", "expert", "searched")
SIZES = "64K,1M,16M,256M"
_SEARCH_S = 10.0

_Cable = tuple[str, str, LinkKind, float, float]


def host(gpus: int, nics: int, *, nvlink_gb_per_s: float = 300.0, mesh: bool = False) -> Topology:
    """Return a host with an NVSwitch, or the NVLink mesh of a DGX-1; GPUs share the NICs evenly."""
    names = [f"gpu{i}" for i in range(gpus)]
    capability = 80 if nvlink_gb_per_s >= 300.0 and not mesh else 70
    devices = [
        *(
            Device(name, DeviceKind.GPU, 0, i, compute_capability=capability)
            for i, name in enumerate(names)
        ),
        *(Device(f"nic{i}", DeviceKind.NIC, 0, i) for i in range(nics)),
        *(Device(f"pcie{i}", DeviceKind.PCIE_SWITCH, 0, i) for i in range(nics)),
    ]
    cables: list[_Cable] = []
    if mesh:
        cables += _dgx1_mesh()
    else:
        devices.append(Device("nvswitch", DeviceKind.NVSWITCH, 0))
        cables += [(name, "nvswitch", LinkKind.NVLINK, nvlink_gb_per_s, 0.35) for name in names]
    for i, name in enumerate(names):
        cables.append((name, f"pcie{i * nics // gpus}", LinkKind.PCIE, 26.0, 0.1))
    cables += [(f"pcie{i}", f"nic{i}", LinkKind.PCIE, 26.0, 0.1) for i in range(nics)]
    links = [
        Link(a, b, kind, gb_per_s, latency_us, Provenance.SPEC)
        for src, dst, kind, gb_per_s, latency_us in cables
        for a, b in ((src, dst), (dst, src))
    ]
    return Topology("host", tuple(devices), tuple(links))


def _dgx1_mesh() -> Iterator[_Cable]:
    """Two quads of GPUs, and an edge of a cube from each GPU to the other quad."""
    doubled = [(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)]
    single = [(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)]
    for pairs, gb_per_s in ((doubled, 50.0), (single, 25.0)):
        yield from ((f"gpu{a}", f"gpu{b}", LinkKind.NVLINK, gb_per_s, 0.7) for a, b in pairs)


def cluster(
    machine: Topology,
    nodes: int,
    nic_gb_per_s: float,
    *,
    node_gpus: Sequence[int] | None = None,
    racks: tuple[int, ...] = (),
    oversubscription: float = 1.0,
) -> Topology:
    """Return nodes on one fabric, or in racks."""
    network = Network(1.7, NetworkLayout.FABRIC, nic_gb_per_s, racks, oversubscription)
    return replicate(machine, nodes, network, node_gpus)


def without(topology: Topology, device: str) -> Topology:
    """Return a machine less a device."""
    return replace(
        topology,
        devices=tuple(each for each in topology.devices if each.name != device),
        links=tuple(each for each in topology.links if device not in (each.src, each.dst)),
    )


def slowed(topology: Topology, nic: str, share: float) -> Topology:
    """Return a machine whose NIC has a share of its bandwidth on the network."""
    return replace(
        topology,
        links=tuple(
            replace(link, bandwidth_gb_per_s=share * link.bandwidth_gb_per_s)
            if link.kind is LinkKind.NETWORK and nic in (link.src, link.dst)
            else link
            for link in topology.links
        ),
    )


MACHINES: dict[str, tuple[str, Callable[[], Topology]]] = {
    "a100": ("2 x 8 A100, 8 NICs of 25 GB/s", lambda: cluster(host(8, 8), 2, 25.0)),
    "a100_less_nic": (
        "the same less a NIC",
        lambda: without(cluster(host(8, 8), 2, 25.0), "n0/nic0"),
    ),
    "four_nics_less_one": (
        "2 x 8 A100, 4 NICs of 12.5 GB/s, one of them down",
        lambda: without(cluster(host(8, 4), 2, 12.5), "n0/nic0"),
    ),
    "slow_rail": (
        "2 x 4 A100, 4 NICs of 12.5 GB/s, one of them at half its rate",
        lambda: slowed(cluster(host(4, 4), 2, 12.5), "n0/nic0", 0.5),
    ),
    "two_slow_rail": (
        "2 x 2 A100, 2 NICs of 3 GB/s, one of them at half its rate",
        lambda: slowed(cluster(host(2, 2), 2, 3.0), "n0/nic0", 0.5),
    ),
    "ndv2": (
        "2 x 8 V100 in the mesh of a DGX-1, a NIC of 12.5 GB/s",
        lambda: cluster(host(8, 1, mesh=True), 2, 12.5),
    ),
    "dgx2": (
        "2 x 16 V100, NVSwitch of 125 GB/s, 8 NICs of 12.5 GB/s",
        lambda: cluster(host(16, 8, nvlink_gb_per_s=125.0), 2, 12.5),
    ),
    "ragged": (
        "8 + 4 A100, 4 NICs of 12.5 GB/s a host",
        lambda: cluster(host(8, 4), 2, 12.5, node_gpus=(8, 4)),
    ),
    "two_nics": ("2 x 8 A100, 2 NICs of 25 GB/s", lambda: cluster(host(8, 2), 2, 25.0)),
    "racks": (
        "8 x 4 A100 in racks of 4 + 4, 4 NICs of 12.5 GB/s, uplinks 4:1",
        lambda: cluster(host(4, 4), 8, 12.5, racks=(4, 4), oversubscription=4.0),
    ),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """Times of the best candidate of each kind."""

    machine: str
    operation: str
    size_bytes: int
    nccl_us: float
    plan_us: float
    expert_us: float
    searched_us: float
    winner: str
    gain: float
    """The best of plan and expert over the searched schedule; 0 if there is none to compare."""
    search_s: float


def kind_of(candidate: Candidate) -> str:
    """Return which of `KINDS` a candidate is."""
    if candidate.phases is not None:
        return "plan"
    return "searched" if candidate.origin.startswith("synthesized") else "expert"


def cells(
    name: str, operation: Collective, sizes_bytes: Sequence[int], workers: Workers
) -> Iterator[Cell]:
    """Yield the cells of a machine and an operation."""
    topology = MACHINES[name][1]()
    started = time.perf_counter()
    request = RoundsRequest(
        operation, topology, whole_machine(topology), sizes_bytes, search_s=_SEARCH_S
    )
    candidates = candidates_across_hosts(request, workers=workers)
    search_s = time.perf_counter() - started
    schedules = {each.content_hash: each for each in candidates}
    backend = SimulatedBackend(topology, schedules, seed=0, spread=0.0)
    shape = communicator_shape(topology)
    for size_bytes in sizes_bytes:
        task = Task(operation, size_bytes, shape)

        def time_us(configs: Iterable[Config], task: Task = task) -> float:
            return min(
                (backend.measure(task, each, 0, 1).samples_us[0] for each in configs), default=inf
            )

        best = dict.fromkeys(KINDS, inf)
        for candidate in candidates:
            if candidate.promises_for(size_bytes):
                found_us = time_us(executor_space([candidate], size_bytes))
                best[kind_of(candidate)] = min(best[kind_of(candidate)], found_us)
        others = min(best["plan"], best["expert"])
        winner = min(KINDS, key=lambda kind: best[kind])
        nccl_us = time_us([STOCK])
        if nccl_us < best[winner]:
            winner = "nccl"
        gain = others / best["searched"] if max(others, best["searched"]) < inf else 0.0
        yield Cell(
            name,
            operation.value,
            size_bytes,
            nccl_us,
            best["plan"],
            best["expert"],
            best["searched"],
            winner,
            gain,
            search_s,
        )


def main() -> None:
    """Print a table, or its rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--machines", default=",".join(MACHINES))
    parser.add_argument("--operations", default=",".join(each.value for each in COLLECTIVES))
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    sizes_bytes = [parse_size(size) for size in arguments.sizes.split(",")]
    with worker_processes(arguments.workers) as workers:
        for name in arguments.machines.split(","):
            rows = []
            for operation in arguments.operations.split(","):
                found = list(cells(name, parse_collective(operation), sizes_bytes, workers))
                rows += found
                if arguments.json:
                    for cell in found:
                        print(json.dumps(asdict(cell)), flush=True)
            if not arguments.json:
                print(f"{name}: {MACHINES[name][0]}")
                frame = pd.DataFrame(rows).drop(columns="machine")
                frame["size_bytes"] = frame["size_bytes"].map(format_size)
                print(frame.rename(columns={"size_bytes": "size"}).round(2).to_string(index=False))


if __name__ == "__main__":
    main()
