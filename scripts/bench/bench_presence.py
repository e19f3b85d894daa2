#!/usr/bin/env python3
"""What loading the parts of a table costs calls that it leaves to NCCL, pass by pass.

    scripts/bench/bench_presence.py DIR reduce_scatter:4M,8M all_reduce:4M \
        [--fake-nodes 2] [--rounds 2] [--passes 4]

DIR is a directory of `tuccl ship`. Each round starts a job of every contender: stock NCCL; the
plugin alone; plugin and executor with a bundle that has no schedule, so that the executor has
nothing to serve; all of the table, with the communicators of its rails; and the last with stock
NCCL under CUDA_DEVICE_MAX_CONNECTIONS=32. A job makes several passes over the keys. A figure is
stock NCCL's time of the same pass over the contender's, the geometric mean of all rounds:

- below 1 with the plugin alone: the plugin's answers;
- first below 1 with the executor that serves nothing: its exchange at the start, its thread;
- first with all: memory, streams and communicators of the rails, or the process profile;
- with all, but not with 32 connections: streams that share the hardware's queues;
- in the first passes only: connections of NCCL that smaller calls have not warmed, as the
  executor made these.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import Collective
from lookup_tables.table import Table
from tuccl.crew.places import LocalPlaces
from tuccl.measuring.engines.job import Job, Site, turn_order
from tuccl.measuring.engines.job_processes import STOCK, Contender
from tuccl.measuring.engines.nccl_environment import count_gpus
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE, find_nccl
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.measuring.workers.seating import whole_shape
from tuccl.quantities import format_size, parse_size
from tuccl.runtime.executor_library import BUNDLE_VARIABLE, PRELOAD_VARIABLE, without_executor
from tuccl.search.trials.backend import JobCall
from tuccl.search.trials.config import Task
from tuccl.search.trials.timing import Timing
from tuccl.shipping.bench.contenders import ShippedTable, read_shipped_table

_QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
_ALL, _STOCK_32, _ALL_32 = "all of the table", "stock, 32 queues", "all, 32 queues"
Times = dict[tuple[str, int, Task], list[float]]
"""Times in us by contender, pass and key."""


def contenders_of(table: ShippedTable, folder: Path) -> list[Contender]:
    """Return stock NCCL and the table in parts; the bundle without schedules is in the folder."""
    plugin = dict(table.variables)
    plugin[PRELOAD_VARIABLE] = without_executor(plugin.get(PRELOAD_VARIABLE, ""))
    found = [STOCK, Contender("plugin alone", plugin)]
    if table.has_executor and table.table is not None:
        bundle = bundle_bytes(_without_schedules(table.table))
        path = folder / "idle.tuccl"
        path.write_bytes(bundle)
        named = {BUNDLE_VARIABLE: str(path), "TUCCL_BUNDLE_CRC": f"{bundle_crc(bundle):08x}"}
        found.append(Contender("executor, no schedules", {**table.variables, **named}))
    return [
        *found,
        Contender(_ALL, table.variables),
        Contender(_STOCK_32, {**STOCK.variables, **_QUEUES}),
        Contender(_ALL_32, {**table.variables, **_QUEUES}),
    ]


def _without_schedules(table: Table) -> Table:
    entries = tuple(
        replace(entry, schedule=None, time_us=entry.builtin_time_us, confirmation=None)
        for entry in table.entries
        if entry.builtin is not None and entry.builtin_time_us is not None
    )
    return replace(table, entries=entries, schedules=())


def keys_of(words: Sequence[str], site: Site) -> list[Task]:
    """Parse `reduce_scatter:4M,8M`."""
    pairs = (word.partition(":")[::2] for word in words)
    return [
        Task(Collective.named(operation), parse_size(size), site.shape)
        for operation, sizes in pairs
        for size in sizes.split(",")
    ]


def measure(
    site: Site, contenders: Sequence[Contender], keys: Sequence[Task], rounds: int, passes: int
) -> Times:
    """Time the keys in jobs of each contender, in turn."""
    times_us: Times = {}
    for number in range(rounds):
        for contender in turn_order(contenders, number):
            with Job(site, contender) as job:
                for each in range(passes):
                    for key in keys:
                        own = times_us.setdefault((contender.name, each, key), [])
                        own.append(job.time_us(JobCall(key)))
    return times_us


def show(times_us: Mapping[tuple[str, int, Task], Sequence[float]]) -> None:
    """Print a row for each contender and key, with a figure for each pass."""
    for name in dict.fromkeys(name for name, _, _ in times_us):
        base = {_ALL_32: _STOCK_32}.get(name, STOCK.name)
        for key in dict.fromkeys(key for _, _, key in times_us) if name != base else ():
            ratios = [
                geometric_mean(
                    stock / own
                    for stock, own in zip(
                        times_us[base, at, key], times_us[who, at, key], strict=True
                    )
                )
                for who, at, of in times_us
                if (who, of) == (name, key)
            ]
            stock_us = geometric_mean(times_us[base, 0, key])
            figures = "  ".join(f"{ratio:.3f}" for ratio in ratios)
            size = format_size(key.size_bytes)
            print(
                f"{name:24} {key.operation.value:14} {size:>5}  {figures}  stock {stock_us:.1f} us"
            )


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("keys", nargs="+", metavar="OPERATION:SIZE,...")
    parser.add_argument("--fake-nodes", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--passes", type=int, default=4)
    given = parser.parse_args()
    gpus, laboratory = count_gpus(2), Laboratory(given.fake_nodes)
    environment = {**os.environ, LIBRARY_VARIABLE: str(find_nccl(None, os.environ).path)}
    faked = laboratory.node_sizes(gpus)
    began = time.monotonic()
    with closing(LocalPlaces(gpus, gpus, environment)) as places, TemporaryDirectory() as folder:
        site = Site(places, whole_shape(places.places, faked), Timing(), faked)
        contenders = contenders_of(read_shipped_table(given.directory, "table"), Path(folder))
        keys = keys_of(given.keys, site)
        show(measure(site, contenders, keys, given.rounds, given.passes))
    print(f"{time.monotonic() - began:.0f} s, {given.rounds} rounds; a column is a pass")


if __name__ == "__main__":
    main()
