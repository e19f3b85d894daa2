#!/usr/bin/env python3
"""Seconds, memory and bytes of `tuccl init` in the model on 4 to 128 machines of 8 A100.

    scripts/bench/bench_scale.py [--nodes 4,16,64,128] [--without n0/nic0] [--operations broadcast]

`--without` takes a device away, so that nodes are not even. A row is `tuccl init`, as it is
installed, then `table`, `explain` and `ship` of its result. A
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
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lookup_tables.bundles.bundle import load_bundle
from probes.topology.json_form import topology_to_json
from tests.sketches.machines import without
from tuccl.options.machine import load_machine
from tuccl.options.machine_options import MachineOptions
from tuccl.options.option import DEFAULT_WORKSPACE
from tuccl.workspace.runs import Workspace

_NO_ENTRY = 1
"""Exit code of `explain` where NCCL's own choice stays."""
LATER = {"table": (), "explain": ("all_reduce", "4M"), "ship": ("shipped",)}
MACHINE = "shipped:a100-8gpu-8nic"


def measure(nodes: int, absent: str, options: tuple[str, ...], folder: Path) -> dict[str, float]:
    """Return the figures of one cluster by their columns; the commands run in `folder`."""
    machine: tuple[str, ...] = (MACHINE, "--nodes", str(nodes))
    options = (*options, *(() if "--shapes" in options else ("--shapes", "whole")))
    if absent:
        cluster = without(load_machine(MachineOptions(MACHINE, nodes=nodes)), absent)
        file = folder / "machine.json"
        file.write_text(topology_to_json(cluster))
        machine = (str(file),)
    started = time.perf_counter()
    used = run_command(("init", "--topology", *machine, "--backend", "simulated", *options), folder)
    wall_s = time.perf_counter() - started
    run = Workspace(folder / DEFAULT_WORKSPACE).current()
    row: dict[str, float] = {
        "nodes": nodes,
        "GPUs": 8 * nodes,
        "entries": len(load_bundle(run.bundle).entries),
        "bundle B": run.bundle.stat().st_size,
        "table B": run.table.stat().st_size,
        "all files B": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        "wall s": wall_s,
        "cpu s": used.ru_utime + used.ru_stime,
        "peak MB": used.ru_maxrss * 1024 / 1e6,
    }
    for name, arguments in LATER.items():
        used = run_command((name, *arguments), folder)
        row[f"{name} s"] = used.ru_utime + used.ru_stime
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


def main() -> int:
    """Measure and print a row for each number of machines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--nodes", default="4,16,64,128")
    parser.add_argument("--without", default="", help="name of a device that is absent")
    parser.add_argument("--operations", help="those of init if not given")
    arguments = parser.parse_args()
    options = ("--operations", arguments.operations) if arguments.operations else ()
    for number, nodes in enumerate(map(int, arguments.nodes.split(","))):
        with TemporaryDirectory() as folder:
            row = measure(nodes, arguments.without, options, Path(folder))
        if number == 0:
            print(" ".join(f"{name:>11}" for name in row))
        cells = (
            f"{value:>11.2f}" if name.endswith(" s") else f"{value:>11.0f}"
            for name, value in row.items()
        )
        print(" ".join(cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
