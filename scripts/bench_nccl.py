"""Compares a table with stock NCCL and with fixed environments, in one interleaved run.

Every round starts new processes for each variant in turn, in another order each time, so that what
changes on the machine meanwhile meets all of them; with --turns they run side by side and take
turns at every key. Stock runs twice in each round: a key's speedup is the median over the rounds of
the geometric mean of stock's two times by the variant's in the same round, each the interquartile
mean of its launches; beside it stands its standard error. What the second ("stock again") has over
the first is the noise of the key, and by how much the two differ in a round is said at the end. The
table is used as a job uses it: plugin, bundle and tuccl.env alone; what its entries gain is told
beside what tuning said that they would. Needs NVIDIA GPUs, an installed NCCL and a C compiler.

    bench_nccl.py --table SHIPPED [--exhaustive] [--fake-nodes 2] [--entries-only] [--json FILE]

Exit code 0 when everything ran, 2 when something could not.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from measuring_job import JobError, build_libraries  # noqa: E402
from measuring_site import (  # noqa: E402
    Site,
    add_site_arguments,
    check_site_arguments,
    site_of,
)
from nccl_summary import summarize, tell  # noqa: E402
from nccl_variants import (  # noqa: E402
    Key,
    Variant,
    best_static,
    control,
    exhaustive,
    run_side_by_side,
    stock,
)
from shipped_table import table  # noqa: E402

from lookup_tables.errors import TableError  # noqa: E402
from tuccl.errors import TucclError  # noqa: E402
from tuccl.measuring.congestion import congestion_control, loopback_notes  # noqa: E402
from tuccl.words.sizes import parse_size, size_ladder  # noqa: E402


def run_rounds(
    site: Site, variants: Sequence[Variant], arguments: argparse.Namespace
) -> dict[str, list[dict[Key, float]]]:
    """Times of each variant by round, or by pass where they take turns.

    No round but the first begins that would not end in time.
    """
    rounds, launches = arguments.rounds, arguments.launches
    times: dict[str, list[dict[Key, float]]] = {variant.name: [] for variant in variants}
    first = time.monotonic()
    for number in range(rounds):
        begin = time.monotonic()
        if number and (begin - first) * (number + 1) / number > arguments.seconds:
            break
        shift = number % len(variants)
        order = (*variants[shift:], *variants[:shift])
        if arguments.turns:
            for name, passes in run_side_by_side(site, order, launches, arguments.turns).items():
                times[name] += passes
        else:
            for variant in order:
                times[variant.name].append(variant.run(site, launches))
        print(f"round {number + 1} of {rounds}: {time.monotonic() - begin:.1f} s", flush=True)
    return times


def bench(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Makes the variants, runs the rounds."""
    begin = time.monotonic()
    over_loopback = congestion_control() if arguments.fake_nodes > 1 else ""
    for note in loopback_notes(over_loopback):
        print(f"note: {note}", file=sys.stderr, flush=True)
    call = {
        "data_type": arguments.data_type,
        "in_place": arguments.in_place,
        "use_graph": not arguments.plain,
        "host_clock": arguments.host_clock,
    }
    libraries = build_libraries(folder / "built")
    site = site_of(arguments, folder, libraries, call, pinned=arguments.pin)
    sizes = size_ladder(parse_size(arguments.smallest), parse_size(arguments.largest), 2)
    keys = [(operation, size) for operation in arguments.operations for size in sizes]
    shipped = [] if arguments.table is None else [table(site, arguments.table, keys)]
    if arguments.entries_only:
        keys = [key for key in keys if any(key in variant.entries for variant in shipped)]
        shipped = [variant.restricted_to(keys) for variant in shipped]
        if not keys:
            raise JobError(
                "--entries-only: the table has no entry for these keys, or none is given"
            )
    variants = [stock(keys), *shipped]
    if not arguments.no_static:
        variants.append(best_static(site, keys, arguments.static))
    if arguments.exhaustive:
        variants.append(exhaustive(site, keys))
    variants.append(control(keys))
    if arguments.apart:
        variants = [variant.apart() for variant in variants]
    prepared = time.monotonic()
    times = run_rounds(site, variants, arguments)
    return summarize(keys, variants, times, arguments.turns or 1) | {
        "nccl": site.nccl,
        "ranks": site.ranks,
        "nodes": site.nodes,
        "gpus": site.gpus,
        "pinned": site.pinned,
        "congestion_control": over_loopback,
        "apart": arguments.apart,
        "turns": arguments.turns,
        "rounds": len(times["stock"]),
        "call": dict(site.call),
        "preparing_seconds": prepared - begin,
        "rounds_seconds": time.monotonic() - prepared,
    }


def parse_arguments() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--table", type=Path, help="directory written by `tuccl ship`")
    parser.add_argument(
        "--operations", nargs="+", default=["all_reduce", "all_gather", "reduce_scatter"]
    )
    parser.add_argument("--from", dest="smallest", default="1K", help="smallest size")
    parser.add_argument("--to", dest="largest", default="1G", help="largest size, in steps of 2")
    parser.add_argument(
        "--entries-only",
        action="store_true",
        help="only keys that the table has an entry for; where its process profile is NCCL's own, "
        "it changes nothing for the others",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="for the rounds; fewer when it is spent"
    )
    parser.add_argument("--launches", type=int, default=6, help="of each key in each round")
    parser.add_argument(
        "--static", action="append", default=[], help="'NAME=VALUE ...', instead of the usual ones"
    )
    parser.add_argument("--no-static", action="store_true", help="without fixed environments")
    parser.add_argument("--exhaustive", action="store_true", help="takes minutes more")
    parser.add_argument("--data-type", default="float16")
    parser.add_argument("--in-place", action="store_true")
    parser.add_argument("--plain", action="store_true", help="calls one by one, no graphs")
    parser.add_argument("--host-clock", action="store_true", help="time as nccl-tests does")
    parser.add_argument(
        "--pin",
        action="store_true",
        help="each rank on its share of the cores, its busy threads on the same in every job (for "
        "TCP)",
    )
    parser.add_argument(
        "--apart",
        action="store_true",
        help="a job for each operation, as nccl-tests has them: what other operations connect and "
        "allocate does not count",
    )
    parser.add_argument(
        "--turns",
        type=int,
        default=0,
        metavar="N",
        help="all variants run at the same time, and take turns at every key, N times over in each "
        "round: for hosts whose speed changes within seconds",
    )
    add_site_arguments(parser)
    parser.add_argument("--json", type=Path, help="write everything to this file")
    arguments = parser.parse_args()
    check_site_arguments(parser, arguments)
    if min(arguments.rounds, arguments.launches, arguments.turns + 1) < 1:
        parser.error("--rounds and --launches are 1 at least, --turns is no less than 0")
    if arguments.turns and arguments.exhaustive:
        parser.error("--turns: what takes turns runs the same jobs, which --exhaustive does not")
    return arguments


def main() -> int:
    """Exit code 0, or 2 with one line on what could not run."""
    arguments = parse_arguments()
    try:
        with tempfile.TemporaryDirectory(prefix="tuccl-bench-") as folder:
            summary = bench(arguments, Path(folder))
    except (JobError, TableError, TucclError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(summary, indent=1), encoding="utf-8")
    tell(summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
