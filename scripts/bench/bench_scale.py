#!/usr/bin/env python3
"""Seconds, memory and bytes of `tuccl init` in the model on 4 to 128 machines of 8 A100.

    scripts/bench/bench_scale.py [--nodes 4,16,64,128]

A row is `tuccl init`, as it is installed, then `table`, `explain` and `ship` of its result. A
command that fails ends the bench. `cpu s` is processor time, on a busy machine less than the time
by the clock.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lookup_tables.bundles.bundle import load_bundle
from tuccl.options.option import DEFAULT_WORKSPACE
from tuccl.workspace.runs import Workspace


@dataclass
class Row:
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


def measure(nodes: int, folder: Path) -> Row:
    """Measure one row; the commands run in `folder`."""
    row = Row(nodes, 8 * nodes)
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


HEADER = (
    f"{'nodes':>5} {'GPUs':>5} {'entries':>7} {'bundle B':>9} {'table B':>9} {'all files B':>12} "
    f"{'wall s':>7} {'cpu s':>7} {'peak MB':>8}" + "".join(f" {name + ' s':>9}" for name in LATER)
)


def line(row: Row) -> str:
    """A row as text."""
    return (
        f"{row.nodes:>5} {row.gpus:>5} {row.entries:>7} {row.bundle_bytes:>9} "
        f"{row.table_bytes:>9} {row.workspace_bytes:>12} {row.wall_seconds:>7.1f} "
        f"{row.cpu_seconds:>7.1f} {row.peak_memory_mb:>8.0f}"
        + "".join(f" {row.later_cpu_seconds[name]:>9.2f}" for name in LATER)
    )


def main() -> int:
    """Measure and print a row for each number of machines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--nodes", default="4,16,64,128")
    arguments = parser.parse_args()
    print(HEADER, flush=True)
    for nodes in map(int, arguments.nodes.split(",")):
        with TemporaryDirectory() as folder:
            print(line(measure(nodes, Path(folder))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
