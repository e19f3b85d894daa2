#!/usr/bin/env python3
"""Seconds and memory on 16 to 1,024 GPUs: of rail exchanges, and of `tuccl init` as a whole.

Every row of a rail exchange runs in its own process: a cluster of nodes with 8 GPUs (NVLink 450
GB/s, one NIC of 50 GB/s each, rail-wise network) is made, sketched and bounded, the schedule is
built for its rails, verified for one FIFO slot in place and out of place, and simulated on the
pruned sketch. Bandwidths are modelled, no GPU is used. The program is written in threadblocks
directly, so `build` includes lowering. `cpu s` is the processor time of the process, on a busy
machine less than the wall time. Exit code 1 when a schedule is not proved or stays below 95 % of
the bound.

    scripts/bench/bench_scale.py --nodes 2,4,16,128 --json
    scripts/bench/bench_scale.py --init --nodes 4,16,64,128

With `--init` every row is `tuccl init`, as it is installed, in the model on so many machines of 8
A100, then `table`, `explain` and `ship` of its result: seconds, peak memory and bytes of what it
leaves. Exit code 1 when a command fails.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lookup_tables.bundles.bundle import load_bundle
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Provenance, Topology
from probes.topology.replicate import Network, NetworkLayout, replicate
from sketches.candidates import sketch_candidates, whole_machine
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import algbw_bound_gb_per_s
from synthesizer.experts.hierarchical import rail_grid
from synthesizer.experts.rail_exchange import rail_exchange
from synthesizer.ir.collectives import Collective
from synthesizer.prove.verifier import verify
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule
from tuccl.options.option import DEFAULT_WORKSPACE
from tuccl.workspace.runs import Workspace

NODES = (2, 4, 8, 16, 32, 64, 128)
SIZES = {"1GB": 10**9, "64MB": 64 * 10**6}
TARGET_RATIO = 0.95
TARGET_NODES = 16
"""Least number of nodes at which the NICs alone limit; with fewer, NVLink limits too."""

T = TypeVar("T")


@dataclass
class Row:
    """Cost and result of one collective on one cluster."""

    collective: str
    nodes: int
    gpus: int
    schedule: str = ""
    steps: int = 0
    proved: bool = False
    bound_gb_per_s: float = 0.0
    algbw_gb_per_s: dict[str, float] = field(default_factory=dict)
    ratio: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    peak_memory_gb: float = 0.0

    def timed(self, stage: str, work: Callable[[], T]) -> T:
        """Run a stage and record its seconds."""
        started = time.perf_counter()
        result = work()
        self.seconds[stage] = time.perf_counter() - started
        return result


def h100() -> Topology:
    """Eight H100 behind NVSwitch, each with a NIC under its own PCIe switch."""
    devices = [Device("nvswitch0", DeviceKind.NVSWITCH, 0)]
    links: list[Link] = []

    def cable(a: str, b: str, kind: LinkKind, gb_per_s: float, latency_us: float) -> None:
        for src, dst in ((a, b), (b, a)):
            links.append(Link(src, dst, kind, gb_per_s, latency_us, Provenance.SPEC))

    for i in range(8):
        kinds = (DeviceKind.GPU, DeviceKind.PCIE_SWITCH, DeviceKind.NIC)
        devices += [Device(f"{kind.value}{i}", kind, 0, i) for kind in kinds]
        cable(f"gpu{i}", "nvswitch0", LinkKind.NVLINK, 450.0, 0.35)
        cable(f"gpu{i}", f"pcie_switch{i}", LinkKind.PCIE, 55.0, 0.1)
        cable(f"pcie_switch{i}", f"nic{i}", LinkKind.PCIE, 55.0, 0.1)
    return Topology("h100", tuple(devices), tuple(links))


def measure(name: str, nodes: int) -> Row:
    """Measure one row of the table."""
    row = Row(name, nodes, 8 * nodes)
    collective = Collective(name)
    network = Network(1.7, NetworkLayout.RAILS, 50.0)
    topology = row.timed("replicate", lambda: replicate(h100(), nodes, network))
    sketch = row.timed("sketch", lambda: sketch_candidates(topology)[0])
    row.bound_gb_per_s = row.timed(
        "bound", lambda: algbw_bound_gb_per_s(collective, whole_machine(topology))
    )
    _schedule(row, collective, sketch)
    row.cpu_seconds = time.process_time()
    row.peak_memory_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return row


def _schedule(row: Row, collective: Collective, sketch: Sketch) -> None:
    grid = rail_grid(sketch)
    if grid is None:
        raise SystemExit(f"{sketch.name}: the sketch has no rails; this is a defect, report it")
    algorithm = row.timed("build", lambda: rail_exchange(collective, grid))
    row.schedule, row.steps = algorithm.name, algorithm.step_count
    row.proved = row.timed("verify", lambda: verify(algorithm, slots=1)).proved

    def simulate() -> None:
        compiled = compile_schedule(algorithm, sketch)
        for label, size in SIZES.items():
            time_us = compiled.time_us(size, ExecutionModel())
            row.algbw_gb_per_s[label] = size * 1e-3 / time_us
            row.ratio[label] = row.algbw_gb_per_s[label] / row.bound_gb_per_s

    row.timed("simulate", simulate)


STAGES = ("sketch", "bound", "build", "verify", "simulate")
HEADER = (
    f"{'collective':<14} {'GPUs':>5} {'steps':>8} "
    + " ".join(f"{stage + ' s':>10}" for stage in STAGES)
    + f" {'all s':>7} {'cpu s':>7} {'GB':>5} {'bound':>7}"
    + "".join(f" {label:>7} {'ratio':>6}" for label in SIZES)
)


def line(row: Row) -> str:
    """A row as text; bandwidths in GB/s."""
    stages = " ".join(f"{row.seconds[stage]:>10.2f}" for stage in STAGES)
    figures = "".join(
        f" {row.algbw_gb_per_s[label]:>7.1f} {row.ratio[label]:>6.3f}" for label in SIZES
    )
    return (
        f"{row.collective:<14} {row.gpus:>5} {row.steps:>8} {stages} "
        f"{sum(row.seconds.values()):>7.1f} {row.cpu_seconds:>7.1f} {row.peak_memory_gb:>5.2f} "
        f"{row.bound_gb_per_s:>7.1f}{figures}{'' if row.proved else '  NOT PROVED'}"
    )


@dataclass
class InitRow:
    """Cost and result of `tuccl init` on one cluster."""

    nodes: int
    gpus: int
    entries: int = 0
    bundle_bytes: int = 0
    table_bytes: int = 0
    workspace_bytes: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_mb: float = 0.0
    later_cpu_seconds: dict[str, float] = field(default_factory=dict)
    """Processor time of the commands after it."""


_NO_ENTRY = 1
"""Exit code of `explain` where NCCL's own choice stays."""
LATER = {"table": (), "explain": ("all_reduce", "4M"), "ship": ("shipped",)}
MACHINE = "shipped:a100-8gpu-8nic"


def measure_init(nodes: int, folder: Path) -> InitRow:
    """Measure one row; the commands run in `folder`."""
    row = InitRow(nodes, 8 * nodes)
    started = time.perf_counter()
    init = ("init", "--topology", MACHINE, "--nodes", str(nodes), "--backend", "simulated")
    used = run_command(init, folder)
    row.wall_seconds = time.perf_counter() - started
    row.cpu_seconds = used.ru_utime + used.ru_stime
    row.peak_memory_mb = used.ru_maxrss * 1024 / 1e6
    run = Workspace(folder / DEFAULT_WORKSPACE).current()
    row.bundle_bytes = run.bundle.stat().st_size
    row.table_bytes = run.table.stat().st_size
    row.entries = len(load_bundle(run.bundle).entries)
    row.workspace_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    for name, arguments in LATER.items():
        used = run_command((name, *arguments), folder)
        row.later_cpu_seconds[name] = used.ru_utime + used.ru_stime
    return row


def run_command(arguments: tuple[str, ...], folder: Path) -> resource.struct_rusage:
    """Run a command of this TuCCL and return what it used, with its worker processes."""
    with (folder / "said.txt").open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "tuccl", *arguments],
            cwd=folder,
            stdout=said,
            stderr=said,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in {0, _NO_ENTRY}:
        raise SystemExit(f"{' '.join(arguments)}: {(folder / 'said.txt').read_text()}")
    return used


INIT_HEADER = (
    f"{'nodes':>5} {'GPUs':>5} {'entries':>7} {'bundle B':>9} {'table B':>9} {'all files B':>12} "
    f"{'wall s':>7} {'cpu s':>7} {'peak MB':>8}" + "".join(f" {name + ' s':>9}" for name in LATER)
)


def init_line(row: InitRow) -> str:
    """A row of `--init` as text."""
    return (
        f"{row.nodes:>5} {row.gpus:>5} {row.entries:>7} {row.bundle_bytes:>9} "
        f"{row.table_bytes:>9} {row.workspace_bytes:>12} {row.wall_seconds:>7.1f} "
        f"{row.cpu_seconds:>7.1f} {row.peak_memory_mb:>8.0f}"
        + "".join(f" {row.later_cpu_seconds[name]:>9.2f}" for name in LATER)
    )


def print_inits(nodes: Sequence[int], *, as_json: bool) -> None:
    """Measure and print the rows of `--init`."""
    rows = []
    if not as_json:
        print(INIT_HEADER, flush=True)
    for count in nodes:
        with TemporaryDirectory() as folder:
            rows.append(measure_init(count, Path(folder)))
        if not as_json:
            print(init_line(rows[-1]), flush=True)
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))


def main() -> int:
    """Print the table; return 0 when the target is met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--nodes", default=",".join(map(str, NODES)), help="e.g. 16,128")
    parser.add_argument("--collectives", default="all_gather,all_reduce")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--init", action="store_true", help="measure `tuccl init` as a whole")
    arguments = parser.parse_args()
    if arguments.init:
        print_inits([int(count) for count in arguments.nodes.split(",")], as_json=arguments.json)
        return 0
    rows = []
    if not arguments.json:
        print(HEADER, flush=True)
    for nodes in map(int, arguments.nodes.split(",")):
        for name in arguments.collectives.split(","):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                rows.append(pool.submit(measure, name, nodes).result())
            if not arguments.json:
                print(line(rows[-1]), flush=True)
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    judged = [row for row in rows if row.nodes >= TARGET_NODES]
    low = any(row.ratio["1GB"] < TARGET_RATIO for row in judged)
    return int(low or not all(row.proved for row in rows))


if __name__ == "__main__":
    sys.exit(main())
