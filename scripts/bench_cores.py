"""How fast each core of this host is while all are busy, and whether that stays.

Two hardware threads of one core slow each other down, and a virtual machine may not know which of
its cores are such a pair, nor keep them so: then a job's time depends on where its threads lie. On
each core a process hashes the same bytes over and over; a core's time is the mean of what it needed
in each interval, over the fastest of all cores and intervals.

    bench_cores.py [--seconds 4] [--step 2] [--json FILE]

With `--step 2` only every second core is busy.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import repeat
from multiprocessing.synchronize import Barrier
from pathlib import Path

INTERVAL_S = 0.02
WORK = bytes(1 << 14)
"""Fits into a core's first cache, so that cores share nothing but what executes."""
SLOW = 1.25
"""Over the fastest: more than a core's clock differs, less than a busy sibling costs."""
_READY_WITHIN_S = 60.0
_ALWAYS = 0.98
"""Share of the intervals; the rest is for what the system does in between."""
_meeting: list[Barrier] = []


@dataclass(frozen=True)
class Core:
    """What one core did."""

    number: int
    median: float
    """Of its intervals' times, over the fastest."""
    slow: float
    """Share of its intervals that took over SLOW times the fastest."""
    changes: int
    """How often it became slow, or was no longer."""


def meet_at(barrier: Barrier) -> None:
    """Of a process that hashes: where it waits until the others are ready, too."""
    _meeting.append(barrier)  # A pool hands on what is shared only when its processes start.


def hash_on(core: int, intervals: int) -> list[float]:
    """Mean seconds of a round of work in each interval, from when all processes are ready."""
    os.sched_setaffinity(0, {core})
    _meeting[-1].wait(_READY_WITHIN_S)
    start = time.monotonic()
    times = []
    for number in range(1, intervals + 1):
        begin, rounds, now = time.monotonic(), 0, 0.0
        while now < start + number * INTERVAL_S:
            hashlib.blake2b(WORK)
            rounds += 1
            now = time.monotonic()
        times.append((now - begin) / rounds)
    return times


def summarize(cores: Sequence[int], times: Sequence[Sequence[float]]) -> list[Core]:
    """By core, from the times of its intervals."""
    fastest = min(map(min, times))
    found = []
    for core, own in zip(cores, times, strict=True):
        slow = [time_s > SLOW * fastest for time_s in own]
        found.append(
            Core(
                number=core,
                median=statistics.median(own) / fastest,
                slow=statistics.fmean(slow),
                changes=sum(slow[at] != slow[at - 1] for at in range(1, len(slow))),
            )
        )
    return found


def bench(cores: Sequence[int], seconds: float) -> list[Core]:
    """Keeps all these cores busy at once."""
    intervals = max(2, round(seconds / INTERVAL_S))
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(cores))
    with ProcessPoolExecutor(len(cores), context, meet_at, (barrier,)) as pool:
        # None ends before all have begun, so that each process has one core.
        times = list(pool.map(hash_on, cores, repeat(intervals)))
    return summarize(cores, times)


def tell(found: Sequence[Core]) -> None:
    """For people."""
    print(f"{'core':>4}{'time':>8}{'slow':>8}{'changes':>10}")
    for core in found:
        print(f"{core.number:>4}{core.median:>8.2f}{core.slow:>8.0%}{core.changes:>10}")
    slow = sum(core.slow > 0.5 for core in found)
    moving = sum(1.0 - _ALWAYS < core.slow < _ALWAYS for core in found)
    print(
        f"{len(found)} busy cores: {slow} more than {SLOW} times as slow as the fastest for more "
        f"than half of the time, {moving} now and then"
    )


def parse_arguments() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--step", type=int, default=1, help="of the cores, only every N-th")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    arguments = parser.parse_args()
    if arguments.step < 1 or not arguments.seconds > 0.0:
        parser.error("--step is 1 at least, --seconds more than 0")
    return arguments


def main() -> int:
    """Exit code 0."""
    arguments = parse_arguments()
    cores = sorted(os.sched_getaffinity(0))[:: arguments.step]
    found = bench(cores, arguments.seconds)
    if arguments.json is not None:
        document = [asdict(core) for core in found]
        arguments.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    tell(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
