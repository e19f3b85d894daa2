"""Check that a table's process profile costs nothing on communicators that were not tuned.

    check_untuned.py TABLE [--gpus N] [--rounds N] [--sizes BYTES,...]

TABLE is a directory of `tuccl ship` whose table has a profile, tuned for all GPUs alone
(`tuccl init --shapes whole`). Jobs with stock NCCL, with the table, and with the whole profile as
variables of the process are started in turn; each times all ranks, pairs, and all ranks but one.
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
from pathlib import Path
from statistics import median

from measuring_job import JobError, results_of, start_ranks, wait_for_all, without_tables

from tuccl.measuring.engines.nccl_library import find_nccl
from tuccl.reports.ratios import key_gains
from tuccl.shipping.bench.contenders import read_shipped_table
from tuccl.shipping.sourcing import job_environment

_RANK = Path(__file__).with_name("untuned_rank.py")
_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")
_DEADLINE_S = 300.0
_TUNED = "all ranks"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="1024,65536,1048576,4194304,16777216,67108864")
    return parser.parse_args()


def _run(given: argparse.Namespace, environment: dict[str, str]) -> tuple[dict[str, float], float]:
    """Run a job; return the times of its slowest ranks, and seconds of its start."""
    job = {
        "ranks": given.gpus,
        "nccl": str(find_nccl(None, os.environ).path),
        "operations": _OPERATIONS,
        "sizes": [int(size) for size in given.sizes.split(",")],
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes = start_ranks(_RANK, folder, job, [environment] * given.gpus)
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
    times: dict[str, dict[str, list[float]]] = {name: {} for name in contenders}
    starts_s: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(given.rounds):
        for name, environment in contenders.items():
            times_us, started_s = _run(given, environment)
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
        if not key.startswith(_TUNED) and gains["table"][key].high < 1.0:
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
