#!/usr/bin/env python3
"""What variables of NCCL gain its own choice, key by key, in jobs with and without them in turn.

    scripts/bench/bench_variables.py all_reduce:1K,1M,64M all_gather:1K,64M \
        --set NCCL_SOCKET_NTHREADS=1,NCCL_NSOCKS_PERTHREAD=1 --set NCCL_SOCKET_NTHREADS=2 \
        [--fake-nodes 2 [--share-gpus]] [--rounds 6] [--passes 2]

Each `--set` is a contender. A round starts a job of stock NCCL and one of each contender, in
another order than the round before, and each job makes some passes over the keys, in CUDA graphs.
A line is a contender's key: the geometric means over the rounds of stock NCCL's time and of its
own, stock NCCL's over its own, and the standard error of the logarithm of that. Needs NVIDIA GPUs;
`--share-gpus` gives every faked node all of them, under MPS.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean, median, variance

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench_chunks import keys_of

from tuccl.crew.places import LocalPlaces
from tuccl.measuring.engines.job import Job, Site, turn_order
from tuccl.measuring.engines.job_processes import STOCK, Contender
from tuccl.measuring.engines.nccl_environment import count_gpus
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE, find_nccl
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.measuring.workers.seating import whole_shape
from tuccl.search.trials.backend import JobCall
from tuccl.search.trials.config import Task
from tuccl.search.trials.timing import Timing

Logs = dict[tuple[str, Task], list[float]]
"""Logarithms of times in us, one for each round, by contender and key."""


def contender_of(text: str) -> Contender:
    """Parse `NAME=VALUE,NAME=VALUE`.

    Raises:
        ValueError: A pair has no `=`.
    """
    return Contender(text, dict(pair.split("=", 1) for pair in text.split(",")))


def measure(
    site: Site, contenders: Sequence[Contender], keys: Sequence[Task], rounds: int, passes: int
) -> Logs:
    """Time the keys in jobs of each contender, in turn."""
    logs: Logs = defaultdict(list)
    for number in range(rounds):
        for contender in turn_order(contenders, number):
            with Job(site, contender) as job:
                times = [[job.time_us(JobCall(key)) for key in keys] for _ in range(passes)]
            for key, own in zip(keys, zip(*times, strict=True), strict=True):
                logs[contender.name, key].append(math.log(median(own)))
    return logs


def line(name: str, key: Task, logs: Logs) -> str:
    """Return the line of a contender's key."""
    stock, own = logs[STOCK.name, key], logs[name, key]
    ratio = math.exp(fmean(stock) - fmean(own))
    error = math.sqrt((variance(stock) + variance(own)) / len(own))
    times = f"{math.exp(fmean(stock)):10.1f} {math.exp(fmean(own)):10.1f} us"
    return f"{name}  {key.full_name:34} {times} {ratio:7.3f} +- {error:.3f}"


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("keys", nargs="+", metavar="OPERATION:SIZE,...")
    parser.add_argument(
        "--set", action="append", required=True, type=contender_of, metavar="NAME=VALUE,..."
    )
    parser.add_argument("--fake-nodes", type=int, default=1)
    parser.add_argument("--share-gpus", action="store_true")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--passes", type=int, default=2)
    given = parser.parse_args()
    if given.rounds < 2:
        parser.error("an error needs two rounds")
    laboratory = Laboratory(given.fake_nodes, given.share_gpus)
    ranks = laboratory.ranks(count_gpus(1 if given.share_gpus else 2))
    environment = {**os.environ, LIBRARY_VARIABLE: str(find_nccl(None, os.environ).path)}
    faked = laboratory.node_sizes(ranks)
    contenders = [STOCK, *given.set]
    with closing(LocalPlaces(ranks, laboratory.devices(ranks), environment)) as places:
        site = Site(places, whole_shape(places.places, faked), Timing(), faked)
        logs = measure(
            site, contenders, keys_of(given.keys, site.shape), given.rounds, given.passes
        )
    for name, key in logs:
        if name != STOCK.name:
            print(line(name, key, logs))


if __name__ == "__main__":
    main()
