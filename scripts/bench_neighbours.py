"""What NCCL's own choice of a size pays when smaller sizes before it ran another way.

A table has entries for some sizes and leaves the others to NCCL, whose connections were used by
other calls then than in a job without a table. Here both happen in the same processes, walk by walk
over all sizes in ascending order, operation by operation, as nccl-tests makes them: "stock" leaves
every call to NCCL, "neighbours" puts some sizes onto a ring of one channel, as tables for TCP do,
and "stock again" is the first once more, which shows the noise. Each walk is first in its turn. A
ratio is the geometric mean over the jobs of what a key's walks gain over both of stock's, or those
of "stock again" over the other, with its standard error; the first turn of a job, which connects,
does not count.

    bench_neighbours.py --fake-nodes 2 [--share-gpus] [--seconds 120] [--json FILE]

Over TCP it depends on the host's congestion control, so run it under each that is of interest.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from measuring_job import JobError, build_libraries  # noqa: E402
from measuring_site import Key, Site, add_site_arguments, site_of, step  # noqa: E402

from tuccl.errors import TucclError  # noqa: E402
from tuccl.measuring.congestion import congestion_control  # noqa: E402
from tuccl.statistics.estimators import interquartile_mean  # noqa: E402
from tuccl.words.sizes import format_size, parse_size, size_ladder  # noqa: E402

K, M = 1 << 10, 1 << 20
ONE_CHANNEL = {"reduce_scatter": (32 * K, 512 * K), "all_gather": (32 * K, 4 * M)}
"""Sizes that tables for 2 x 2 GPUs over TCP put onto such a ring (docs/nccl-backend.md)."""
_LARGEST_LL = 128 * K
STOCK, NEIGHBOURS, AGAIN = "stock", "neighbours", "stock again"


@dataclass(frozen=True)
class Row:
    """What is known of a key."""

    key: Key
    forced: bool
    stock_us: float
    """Median over the jobs."""
    gains: Mapping[str, tuple[float, float]]
    """By walk: the ratio over stock's time, and its standard error."""


def forced_call(key: Key) -> Mapping[str, Any]:
    """What the neighbours' walk forces a key to run; nothing: NCCL's own choice."""
    operation, size_bytes = key
    smallest, largest = ONE_CHANNEL[operation]
    if not smallest <= size_bytes <= largest:
        return {}
    protocol = "LL" if size_bytes <= _LARGEST_LL else "Simple"
    return {"algorithm": "ring", "protocol": protocol, "nchannels": 1}


def run_walks(
    site: Site, keys: Sequence[Key], order: Sequence[str], launches: int
) -> list[dict[Key, float]]:
    """Times of all keys in us, of one job that makes these walks one after the other.

    Raises:
        JobError: A rank died or hung, or a call could not run.
    """
    steps = []
    for name in order:
        forced = name == NEIGHBOURS
        steps += [step(key, launches) | dict(forced_call(key) if forced else {}) for key in keys]
    found = site.run(steps, {}, controlled=True).steps
    for number, one in enumerate(found):
        if "error" in one:
            operation, size_bytes = keys[number % len(keys)]
            raise JobError(f"{operation} of {size_bytes} bytes: {one['error']}")
    times = [interquartile_mean(one["times_us"]) for one in found]
    return [
        dict(zip(keys, times[start : start + len(keys)], strict=True))
        for start in range(0, len(times), len(keys))
    ]


def run_jobs(
    site: Site, keys: Sequence[Key], turns: int, launches: int, seconds: float
) -> list[dict[str, dict[Key, float]]]:
    """Mean logarithms of the times of each walk, job by job; two jobs at least."""
    jobs: list[dict[str, dict[Key, float]]] = []
    first = time.monotonic()
    names = (STOCK, NEIGHBOURS, AGAIN)
    while len(jobs) < 2 or (time.monotonic() - first) * (len(jobs) + 1) / len(jobs) <= seconds:
        shifts = [(turn + len(jobs)) % len(names) for turn in range(turns + 1)]
        order = [name for shift in shifts for name in (*names[shift:], *names[:shift])]
        walks = run_walks(site, keys, order, launches)
        counted = list(zip(order, walks, strict=True))[len(names) :]
        jobs.append(
            {
                name: {
                    key: statistics.fmean(
                        math.log(times[key]) for walked, times in counted if walked == name
                    )
                    for key in keys
                }
                for name in names
            }
        )
        print(f"job {len(jobs)}: {time.monotonic() - first:.0f} s", file=sys.stderr, flush=True)
    return jobs


def summarize(keys: Sequence[Key], jobs: Sequence[Mapping[str, Mapping[Key, float]]]) -> list[Row]:
    """By key: what neighbours gain over both of stock's walks, and the second over the first."""
    rows = []
    for key in keys:
        both = [(job[STOCK][key] + job[AGAIN][key]) / 2.0 for job in jobs]
        first = [job[STOCK][key] for job in jobs]
        gains = {
            name: _gain(base, [job[name][key] for job in jobs])
            for name, base in ((NEIGHBOURS, both), (AGAIN, first))
        }
        rows.append(Row(key, bool(forced_call(key)), math.exp(statistics.median(both)), gains))
    return rows


def _gain(base: Sequence[float], own: Sequence[float]) -> tuple[float, float]:
    """Ratio of times with these logarithms, and its standard error."""
    logs = [slow - fast for slow, fast in zip(base, own, strict=True)]
    ratio = math.exp(statistics.fmean(logs))
    return ratio, ratio * statistics.stdev(logs) / math.sqrt(len(logs))


def tell(conditions: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """All of it for people."""
    control = conditions["congestion_control"] or "an unknown congestion control"
    print(
        f"{conditions['ranks']} ranks on {conditions['nodes']} nodes, {conditions['gpus']} GPUs, "
        f"{control}, {conditions['jobs']} jobs"
    )
    print(f"{'key':<22}{'stock us':>10}{NEIGHBOURS:>18}{AGAIN:>18}")
    for row in rows:
        cells = (f"{ratio:>9.3f} ± {error:.3f}" for ratio, error in row.gains.values())
        name = f"{row.key[0]} {format_size(row.key[1])}"
        mark = "  one channel" if row.forced else ""
        print(f"{name:<22}{row.stock_us:>10.1f}  {'   '.join(cells)}{mark}")
    left = [row.gains[NEIGHBOURS][0] for row in rows if not row.forced]
    if left:
        print(
            f"the {len(left)} keys left to NCCL: geomean {statistics.geometric_mean(left):.3f}, "
            f"least {min(left):.3f}"
        )


def bench(arguments: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[Row]]:
    """Runs the jobs; what they ran on, and what they found."""
    libraries = build_libraries(folder / "built")
    site = site_of(arguments, folder, libraries, {"use_graph": False}, pinned=True)
    sizes = size_ladder(parse_size(arguments.smallest), parse_size(arguments.largest), 2)
    keys = [(operation, size) for operation in ONE_CHANNEL for size in sizes]
    jobs = run_jobs(site, keys, arguments.turns, arguments.launches, arguments.seconds)
    conditions = {
        "nccl": site.nccl,
        "ranks": site.ranks,
        "nodes": site.nodes,
        "gpus": site.gpus,
        "congestion_control": congestion_control(),
        "jobs": len(jobs),
        "turns": arguments.turns,
    }
    return conditions, summarize(keys, jobs)


def parse_arguments() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    add_site_arguments(parser, fake_nodes=2)
    parser.add_argument("--from", dest="smallest", default="16K", help="smallest size")
    parser.add_argument("--to", dest="largest", default="16M", help="largest size, in steps of 2")
    parser.add_argument("--turns", type=int, default=8, help="of the three walks in a job")
    parser.add_argument("--launches", type=int, default=3, help="of each key in a walk")
    parser.add_argument("--seconds", type=float, default=120.0, help="for all jobs")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    arguments = parser.parse_args()
    if min(arguments.turns, arguments.launches) < 1:
        parser.error("--turns and --launches are 1 at least")
    if arguments.fake_nodes < 2:
        parser.error("--fake-nodes: a network is between two nodes at least")
    return arguments


def main() -> int:
    """Exit code 0, or 2 with one line on what could not run."""
    arguments = parse_arguments()
    try:
        with tempfile.TemporaryDirectory(prefix="tuccl-bench-") as folder:
            conditions, rows = bench(arguments, Path(folder))
    except (JobError, TucclError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    if arguments.json is not None:
        keys = [
            {
                "operation": row.key[0],
                "size_bytes": row.key[1],
                "forced": row.forced,
                "stock_us": row.stock_us,
                "gains": row.gains,
            }
            for row in rows
        ]
        document = conditions | {"keys": keys}
        arguments.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    tell(conditions, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
