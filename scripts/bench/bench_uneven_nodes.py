"""Gains over stock NCCL on simulated nodes of different sizes or with few NICs.

`tuccl init` runs on the simulated backend, once without schedules and once with them. A gain is the
geometric mean over the sizes of an operation, of what the table's entries reach if all of its
schedules ran; keys without an entry count as their run leaves them. Everything is modelled.

    python scripts/bench/bench_uneven_nodes.py [--write DIRECTORY]

`--write` writes the machines to files for `tuccl init --topology`, and runs nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import exp, log
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lookup_tables.program_header import is_staged  # noqa: E402
from lookup_tables.table import Operation  # noqa: E402
from probes.files.read import read_topology  # noqa: E402
from probes.files.shipped import shipped_machines  # noqa: E402
from probes.topology.graph import (  # noqa: E402
    NETWORK_NODE,
    Device,
    DeviceKind,
    Link,
    LinkKind,
    Provenance,
    Topology,
)
from probes.topology.json_form import topology_to_json  # noqa: E402
from probes.topology.replicate import Network, NetworkLayout, replicate  # noqa: E402
from tuccl.options.run_options import SIMULATED, RunOptions  # noqa: E402
from tuccl.reports.finished_run import FinishedRun  # noqa: E402
from tuccl.reports.job_gains import KeyGain, gains_of  # noqa: E402
from tuccl.tuning.pipeline.stages import initialize  # noqa: E402
from tuccl.tuning.settings import RunSettings  # noqa: E402
from tuccl.workspace.runs import Workspace  # noqa: E402

OPERATIONS = (Operation.ALL_GATHER, Operation.ALL_REDUCE, Operation.REDUCE_SCATTER)
SIZES = tuple(1024 * 4**power for power in range(9))
_FABRIC = Network(1.7, NetworkLayout.FABRIC, 25.0)


@dataclass(frozen=True)
class Row:
    """An operation on a machine."""

    operation: Operation
    without: float
    """Gain over stock NCCL without schedules."""
    with_all: float
    """Gain if all schedules of the table ran."""
    rounds: int
    """Sizes that a schedule in stages and rounds wins."""
    plans: int
    """Sizes that a plan of phases wins."""


def machines() -> tuple[Topology, ...]:
    """Return the machines: A100 of 8 GPUs and NICs with some missing, and V100 that share a NIC."""
    return (
        _a100("a100-3+1", (3, 1)),
        _a100("a100-2+1", (2, 1)),
        _a100("a100-8+4", (8, 4)),
        _without(_two_a100(), "a100-2x8-nic-down", {"n1/nic3"}),
        _v100(),
    )


def measure(topology: Topology, sizes_bytes: Sequence[int] = SIZES) -> list[Row]:
    """Tune a machine without schedules and with them."""
    gains: list[list[KeyGain]] = []
    for schedules in (False, True):
        options = RunOptions(backend=SIMULATED, schedules=schedules)
        settings = RunSettings(OPERATIONS, tuple(sizes_bytes), options)
        with TemporaryDirectory() as folder:
            done = initialize(topology, settings, Workspace(Path(folder)), _silent)
        _check(done)
        gains.append(list(gains_of(done).keys))
        staged = {each.content_hash for each in done.table.schedules if is_staged(each.program)}
    without, with_all = gains
    rows = []
    for operation in OPERATIONS:
        own = [gain for gain in with_all if gain.key.operation == operation.value]
        won = [gain.entry.schedule for gain in own if gain.entry and gain.entry.schedule]
        rounds = sum(1 for schedule in won if schedule.schedule in staged)
        rows.append(
            Row(
                operation,
                _mean([g.speedup for g in without if g.key.operation == operation.value]),
                _mean([gain.apart_speedup for gain in own]),
                rounds,
                len(won) - rounds,
            )
        )
    return rows


def main() -> None:
    """Print a row for each operation and machine."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", type=Path, metavar="DIRECTORY", help="write the machines")
    given = parser.parse_args()
    if given.write is not None:
        given.write.mkdir(parents=True, exist_ok=True)
        for topology in machines():
            (given.write / f"{topology.name}.json").write_text(topology_to_json(topology))
        return
    print("| machine | operation | without schedules | with them | rounds | plans |")
    print("|---|---|---|---|---|---|")
    for topology in machines():
        for row in measure(topology):
            print(
                f"| {topology.name} | {row.operation.value} | {row.without:.2f} | "
                f"{row.with_all:.2f} | {row.rounds} | {row.plans} |",
                flush=True,
            )


def _check(done: FinishedRun) -> None:
    """Require of every entry that it is faster than stock NCCL, and its schedule than a setting."""
    for entry in done.table.entries:
        others_us = [entry.default_time_us]
        if entry.schedule is not None and entry.builtin_time_us is not None:
            others_us.append(entry.builtin_time_us)
        if entry.time_us >= min(others_us):
            raise SystemExit(f"{entry.key.operation.value} {entry.tuned_bytes}: gains nothing")


def _mean(gains: Sequence[float]) -> float:
    return exp(sum(map(log, gains)) / len(gains))


def _silent(*_: object, **__: object) -> None:
    """Tell nothing."""


def _two_a100() -> Topology:
    return replicate(read_topology(shipped_machines()["a100-8gpu-8nic"]), 2, _FABRIC)


def _a100(name: str, sizes: tuple[int, int]) -> Topology:
    """Two hosts of 8 A100 and 8 NICs with the first of them left."""
    gone = {
        f"n{node}/{kind}{number}"
        for node, size in enumerate(sizes)
        for number in range(size, 8)
        for kind in ("gpu", "nic")
    }
    return _without(_two_a100(), name, gone)


def _without(machine: Topology, name: str, gone: set[str]) -> Topology:
    return replace(
        machine,
        name=name,
        devices=tuple(device for device in machine.devices if device.name not in gone),
        links=tuple(link for link in machine.links if not gone & {link.src, link.dst}),
    )


def _v100() -> Topology:
    """Two hosts of four V100, each pair with two NVLinks, and one NIC of 100 Gbit/s."""
    devices = [Device("fabric", DeviceKind.NETWORK_SWITCH, NETWORK_NODE)]
    cables: list[tuple[str, str, LinkKind, float, float]] = []
    for node in range(2):
        gpus = [f"n{node}/gpu{number}" for number in range(4)]
        nic, switch = f"n{node}/nic0", f"n{node}/pcie0"
        devices += [
            Device(gpu, DeviceKind.GPU, node, number, compute_capability=70)
            for number, gpu in enumerate(gpus)
        ]
        devices += [
            Device(nic, DeviceKind.NIC, node),
            Device(switch, DeviceKind.PCIE_SWITCH, node),
        ]
        cables += [(a, b, LinkKind.NVLINK, 50.0, 0.7) for a, b in combinations(gpus, 2)]
        cables += [(end, switch, LinkKind.PCIE, 12.0, 0.1) for end in (*gpus, nic)]
        cables.append((nic, "fabric", LinkKind.NETWORK, 12.5, 0.85))
    links = [
        Link(src, dst, kind, gb_per_s, latency_us, Provenance.SPEC)
        for a, b, kind, gb_per_s, latency_us in cables
        for src, dst in ((a, b), (b, a))
    ]
    return Topology("v100-2x4-1nic", tuple(devices), tuple(links))


if __name__ == "__main__":
    main()
