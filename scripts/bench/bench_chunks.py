#!/usr/bin/env python3
"""What the size of chunks gains a setting of NCCL, key by key, against the same setting without.

    scripts/bench/bench_chunks.py all_reduce:1M,4M,16M,64M all_gather:64M \
        [--fake-nodes 2 [--share-gpus]] [--rounds 9] [--channels 0,8] [--chunks 32K,128K,512K]
        [--check]
    scripts/bench/bench_chunks.py --table DIR [--fake-nodes 2] [--rounds 9]

The first form times ring, tree and PAT under Simple, where NCCL allows them, without and with each
size of chunks. The second form times the entries with a size of chunks of a directory of
`tuccl ship`. All settings of a key, and NCCL's own choice, are timed in turn in the
same processes. A line is a setting: its median time without, then for each size the ratio of both
medians, above 1 where chunks gain, with the interval between the quartiles of the ratios of turns;
`own` where they would be NCCL's own. The last column is NCCL's own choice over the best of the
line. Needs NVIDIA GPUs and NCCL 2.30 or later; `--share-gpus` gives every faked node all of them,
under MPS, so that one GPU does for two nodes. `--check` compares the data of every setting, too.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lookup_tables.collective import Collective
from lookup_tables.lookup import WITH_CHUNKS
from lookup_tables.table import NcclProtocol, Shape
from tuccl.crew.places import LocalPlaces
from tuccl.errors import ConfigurationFailedError
from tuccl.measuring.backends.workers_backend import (
    WorkersBackend,
    WorkersOptions,
    open_workers_backend,
)
from tuccl.measuring.engines.nccl_environment import count_gpus
from tuccl.measuring.engines.nccl_workers import nccl_worker_variables
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.measuring.workers.seating import whole_shape
from tuccl.quantities import format_size, parse_size
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.search.trials.in_turn import Samples, in_turn
from tuccl.shipping.bench.contenders import read_shipped_table

Lines = Mapping[Task, Sequence[tuple[Config, tuple[int, ...]]]]
"""For each key its settings without chunks, with the sizes to try."""


def asked_lines(
    backend: WorkersBackend, keys: Sequence[Task], channels: Sequence[int], chunks: Sequence[int]
) -> Lines:
    """Return what NCCL allows for keys, under Simple."""
    found = {}
    for task in keys:
        table = backend.cost_table(task)
        if table is None:
            sys.exit(f"{task.full_name}: NCCL's own choice fails or hangs; see NCCL_DEBUG=WARN")
        if not table.asks_about_chunks:
            sys.exit(f"{task.full_name}: this NCCL does not ask about chunks; take 2.30 or later")
        found[task] = [
            (Config(algorithm.value, protocol.value, count), tuple(chunks))
            for algorithm, protocol in table.allowed
            if algorithm in WITH_CHUNKS and protocol is NcclProtocol.SIMPLE
            for count in channels
        ]
    return found


def table_lines(directory: Path, shape: Shape) -> Lines:
    """Return the entries of a table that have a size of chunks."""
    table = read_shipped_table(directory, "table").table
    if table is None:
        sys.exit(f"{directory} has no table.parquet of its bundle; name a directory of tuccl ship")
    profile = ProcessProfile.of(tuple(sorted(table.profile.items())))
    found = {}
    for entry in table.entries:
        own = entry.builtin
        if own is None or not own.chunk_bytes or entry.key.shape != shape:
            continue
        config = Config(own.algorithm.value, own.protocol.value, own.nchannels)
        task = Task(entry.key.operation, entry.tuned_bytes, shape)
        found[task] = [(profile.applied_to(config), (own.chunk_bytes,))]
    return found


def measure(backend: WorkersBackend, lines: Lines, rounds: int, *, check: bool) -> None:
    """Time the settings of each key in turn, and print its lines."""
    for task, settings in lines.items():
        tried = [
            replace(config, chunk_bytes=size) for config, sizes in settings for size in (0, *sizes)
        ]
        calls = [config for config in tried if runs(backend, task, config, check=check)]
        samples = in_turn([STOCK, *calls], rounds, partial(sample, backend, task))
        for config, sizes in settings:
            if config in samples:
                print(line(task, config, sizes, samples), flush=True)


def runs(backend: WorkersBackend, task: Task, config: Config, *, check: bool) -> bool:
    """Whether NCCL runs a setting otherwise than without chunks; ends if its data are wrong."""
    try:
        sample(backend, task, config)
        if check:
            backend.check(task, config)
    except ConfigurationFailedError as error:
        if "wrong data" in str(error):
            sys.exit(f"{task.full_name} {config.describe()}: {error}")
        return False
    return True


def sample(backend: WorkersBackend, task: Task, config: Config) -> float:
    """Take one sample, in us."""
    return backend.measure(task, config, 0, 1).samples_us[0]


def line(task: Task, config: Config, sizes: Sequence[int], samples: Samples) -> str:
    """Return the line of a setting."""
    without = samples[config]
    best_us = median(without)
    words = [f"{task.operation.value:14} {format_size(task.size_bytes):>5}"]
    words.append(f"{config.describe():24} {best_us:10.1f} us")
    for size in sizes:
        own = samples.get(replace(config, chunk_bytes=size), [])
        text = "own"
        if own:
            best_us = min(best_us, median(own))
            ratios = [a / b for a, b in zip(without, own, strict=True)]
            low, _, high = quantiles(ratios, n=4)
            text = f"{median(without) / median(own):.3f} ({low:.3f} to {high:.3f})"
        words.append(f"chunk{format_size(size)} {text:24}")
    return "  ".join([*words, f"stock/best {median(samples[STOCK]) / best_us:.3f}"])


def keys_of(words: Sequence[str], shape: Shape) -> list[Task]:
    """Parse `reduce_scatter:4M,8M`."""
    pairs = (word.partition(":")[::2] for word in words)
    return [
        Task(Collective.named(operation), parse_size(size), shape)
        for operation, sizes in pairs
        for size in sizes.split(",")
    ]


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("keys", nargs="*", metavar="OPERATION:SIZE,...")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--fake-nodes", type=int, default=1)
    parser.add_argument("--share-gpus", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--channels", default="0")
    parser.add_argument("--chunks", default="32K,128K,512K")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if not given.keys and given.table is None:
        parser.error("name keys, or a --table")
    gpus = count_gpus(1 if given.share_gpus else 2)
    laboratory = Laboratory(given.fake_nodes, given.share_gpus)
    ranks = laboratory.ranks(gpus)
    variables = nccl_worker_variables(gpus, shared=given.share_gpus)
    options = WorkersOptions(laboratory=laboratory, variables=variables)
    with (
        closing(LocalPlaces(ranks, gpus, dict(os.environ))) as places,
        open_workers_backend("nccl", places, options) as backend,
    ):
        shape = whole_shape(places.places, laboratory.node_sizes(ranks))
        print(backend.provenance.details, flush=True)
        if given.table is not None:
            measure(backend, table_lines(given.table, shape), given.rounds, check=given.check)
        channels = [int(count) for count in given.channels.split(",")]
        chunks = [parse_size(size) for size in given.chunks.split(",")]
        keys = keys_of(given.keys, shape)
        lines = asked_lines(backend, keys, channels, chunks)
        measure(backend, lines, given.rounds, check=given.check)


if __name__ == "__main__":
    main()
