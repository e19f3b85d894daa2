"""Check that a table's process profile costs nothing on communicators that were not tuned.

    check_untuned.py TABLE [--gpus N] [--fake-nodes 2 [--share-gpus]] [--rounds N] [--sizes N,...]

TABLE is a directory of `tuccl ship` whose table has a profile, tuned for all GPUs alone
(`tuccl init --shapes whole`). Jobs with stock NCCL, with the table, and with the whole profile as
variables of the process are started in turn; each times all ranks, pairs, and all ranks but one.
Nodes are faked as by `tuccl init`, so that a table of one host can meet communicators over nodes.
Printed are the gains over stock NCCL with intervals that hold together with 95 %, and how long the
communicator of all ranks took to start. Exit code 1: with the table a key of a communicator that
was not tuned is slower, beyond the noise.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from statistics import median

from measuring_job import JobError, results_of, start_ranks, wait_for_all, without_tables

from lookup_tables.table import Shape
from tuccl.measuring.engines.nccl_library import find_nccl
from tuccl.measuring.workers.laboratory import Laboratory, parse_node_sizes
from tuccl.measuring.workers.seating import appearing_as, shape_of_nodes
from tuccl.reports.ratios import key_gains
from tuccl.shipping.bench.contenders import read_shipped_table
from tuccl.shipping.sourcing import job_environment

_RANK = Path(__file__).with_name("untuned_rank.py")
_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")
_DEADLINE_S = 300.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--fake-nodes", default="1", help="2, or sizes such as 3+1")
    parser.add_argument("--share-gpus", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="1024,65536,1048576,4194304,16777216,67108864")
    return parser.parse_args()


def _placed(given: argparse.Namespace) -> tuple[list[int], list[int]]:
    """Return node and device of each rank."""
    nodes, sizes = parse_node_sizes(given.fake_nodes)
    laboratory = Laboratory(nodes, given.share_gpus, sizes=sizes)
    ranks = laboratory.ranks(given.gpus)
    sizes = laboratory.node_sizes(ranks) or (ranks,)
    of_rank = [node for node, size in enumerate(sizes) for _ in range(size)]
    return of_rank, [rank % laboratory.devices(ranks) for rank in range(ranks)]


def _shape_of(nodes: Sequence[int]) -> Shape:
    return shape_of_nodes([list(ranks) for _, ranks in groupby(nodes)])


def _run(
    given: argparse.Namespace,
    nodes: Sequence[int],
    devices: Sequence[int],
    environment: dict[str, str],
) -> tuple[dict[str, float], float]:
    """Run a job; return the times of its slowest ranks, and seconds of its start."""
    job = {
        "devices": devices,
        "nccl": str(find_nccl(None, os.environ).path),
        "operations": _OPERATIONS,
        "sizes": [int(size) for size in given.sizes.split(",")],
    }
    fakes = len(set(nodes)) > 1
    environments = [environment | (appearing_as(node) if fakes else {}) for node in nodes]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes = start_ranks(_RANK, folder, job, environments)
        ends = wait_for_all(processes, time.monotonic() + _DEADLINE_S)
        results = results_of(folder, ends)
    times_us: dict[str, float] = {}
    for result in results:
        for key, time_us in result["times_us"].items():
            times_us[key] = max(time_us, times_us.get(key, 0.0))
    return times_us, max(result["started_s"] for result in results)


def main() -> int:
    """Run the jobs in turn, and print their gains."""
    given = _arguments()
    nodes, devices = _placed(given)
    parts = {"all ranks": nodes, "pairs": nodes[:2], "all but one": nodes[:-1]}
    shipped = read_shipped_table(given.table, given.table.name)
    stock = without_tables(os.environ)
    table = job_environment(given.table, stock)
    contenders = {
        "stock": stock,
        "table": table,
        "process": {**table, **shipped.bundle.profile},
    }
    print("profile:", " ".join(f"{n}={v}" for n, v in shipped.bundle.profile.items()) or "none")
    settings = [f"{own.name} on {own.shape.ranks} ranks" for own in shipped.bundle.settings]
    print("set by the executor:", ", ".join(settings) or "nothing")
    measured = {entry.key.shape for entry in shipped.bundle.all_entries}
    measured.update(own.shape for own in shipped.bundle.settings)
    tuned = tuple(name for name, own in parts.items() if _shape_of(own) in measured)
    print("tuned:", ", ".join(tuned) or "no communicator of this job")
    times: dict[str, dict[str, list[float]]] = {name: {} for name in contenders}
    starts_s: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(given.rounds):
        for name, environment in contenders.items():
            times_us, started_s = _run(given, nodes, devices, environment)
            starts_s[name].append(started_s)
            for key, time_us in times_us.items():
                times[name].setdefault(key, []).append(time_us)
        print(f"round {number + 1} of {given.rounds}", file=sys.stderr)
    gains = {name: key_gains(times["stock"], times[name]) for name in ("table", "process")}
    print(f"{'key':42} {'stock us':>10} {'table':>22} {'process':>22}")
    slower = []
    for key, stock_us in times["stock"].items():
        cells = []
        for name in ("table", "process"):
            gain = gains[name][key]
            cells.append(f"{gain.ratio:.3f} ({gain.low:.3f} to {gain.high:.3f})")
        print(f"{key:42} {median(stock_us):10.2f} {cells[0]:>22} {cells[1]:>22}")
        if not key.startswith(tuned) and gains["table"][key].high < 1.0:
            slower.append(key)
    for name, seconds in starts_s.items():
        print(f"{name}: all ranks started in {median(seconds):.2f} s, median of {given.rounds}")
    print("slower where nothing was tuned:", ", ".join(slower) or "none")
    return 1 if slower else 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except JobError as error:
        raise SystemExit(f"{error}") from error
