"""Times the executor under rules against stock NCCL, and holds it to its targets.

Every round starts new processes for both in turn, in changing order; a key's speedup is the median
over the rounds of stock's time by the executor's in the same round. Calls in CUDA graphs are timed
by events on the GPU, calls one by one by the host's clock as in nccl-tests. Data are checked before
that.

    bench_runtime.py --executor libtuccl-executor.so --sweep --rules rules.txt
    bench_runtime.py --executor libtuccl-executor.so --rules rules.txt --json FILE --svg FILE

With --sweep the rules are found and written first; for tables there is `tuccl bench`. Needs NVIDIA
GPUs, an installed NCCL and a C compiler. Exit code 0 when every target is reached, 1 when one is
missed, 2 when something could not run.
"""

from __future__ import annotations

import argparse
import json
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
from measuring_site import STOCK, Key, Site, step  # noqa: E402
from runtime_plot import draw  # noqa: E402
from runtime_sweep import executor_variables, sweep, write_rules  # noqa: E402
from runtime_targets import GRAPH, PLAIN, Row, judge, tell, totals  # noqa: E402

from tuccl.engines.nccl_environment import count_gpus  # noqa: E402
from tuccl.engines.nccl_library import find_nccl  # noqa: E402
from tuccl.errors import TucclError, UsageError  # noqa: E402
from tuccl.words.sizes import parse_size, size_ladder  # noqa: E402

M = 1 << 20
LARGEST_CHECKED = 16 * M


@dataclass(frozen=True)
class Bench:
    """What is compared, and on what."""

    site: Site
    keys: tuple[Key, ...]
    modes: tuple[str, ...]
    variables: Mapping[str, str]
    """Of the executor's processes."""
    launches: int

    def steps(self) -> list[tuple[str, Key, dict[str, Any]]]:
        """Every mode of every key."""
        return [
            (mode, key, step(key, self.launches) | how(mode))
            for mode in self.modes
            for key in self.keys
        ]

    def run(self, variables: Mapping[str, str]) -> dict[tuple[str, Key], dict[str, Any]]:
        """All of it in new processes."""
        asked = self.steps()
        result = self.site.run([each for _, _, each in asked], variables, controlled=False)
        found = {}
        for (mode, key, _), outcome in zip(asked, result.steps, strict=True):
            if "error" in outcome:
                raise JobError(f"{key[0]} of {key[1]} bytes: {outcome['error']}")
            found[mode, key] = outcome
        return found

    def prove(self) -> int:
        """Let the executor's processes check their data; how many calls were checked.

        Raises:
            JobError: Some are wrong.
        """
        steps = [
            step(key, 1) | how(mode) | {"check": True}
            for mode in self.modes
            for key in self.keys
            if key[1] <= LARGEST_CHECKED
        ]
        result = self.site.run(steps, self.variables, controlled=False)
        for asked, outcome in zip(steps, result.steps, strict=True):
            if wrong := outcome.get("error") or "; ".join(outcome["findings"]):
                where = f"{asked['operation']} of {asked['size_bytes']} bytes"
                raise JobError(f"{where}: {wrong}")
        return len(steps)


def how(mode: str) -> dict[str, Any]:
    """Members of a step that make its mode."""
    return {"use_graph": mode == GRAPH, "host_clock": mode == PLAIN}


def run_rounds(bench: Bench, rounds: int) -> list[Row]:
    """Both in turn, every time kept."""
    variants = {"stock": STOCK, "executor": bench.variables}
    found: dict[str, list[dict[tuple[str, Key], dict[str, Any]]]] = {n: [] for n in variants}
    for number in range(rounds):
        begin = time.monotonic()
        for name in list(variants) if number % 2 == 0 else reversed(variants):
            found[name].append(bench.run(variants[name]))
        seconds = time.monotonic() - begin
        print(f"round {number + 1} of {rounds}: {seconds:.1f} s", flush=True)
    return [
        Row(
            mode,
            key[0],
            key[1],
            tuple(statistics.median(one[mode, key]["times_us"]) for one in found["stock"]),
            tuple(statistics.median(one[mode, key]["times_us"]) for one in found["executor"]),
            all(one[mode, key].get("by_executor", False) for one in found["executor"]),
        )
        for mode in bench.modes
        for key in bench.keys
    ]


def make_site(arguments: argparse.Namespace, folder: Path) -> Site:
    """This machine, with what has to be compiled for it."""
    return Site(
        folder=folder,
        libraries=build_libraries(folder / "built"),
        nccl=str(find_nccl(arguments.nccl).path),
        ranks=arguments.gpus or count_gpus(2),
        limit_s=arguments.limit,
        call={"data_type": "float16", "in_place": arguments.in_place},
    )


def choose_variables(
    arguments: argparse.Namespace, site: Site, keys: Sequence[Key], settings: Mapping[str, str]
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The executor's environment, `settings` included, and what a sweep measured on the way.

    Raises:
        UsageError: The words say no executor, or no rules.
    """
    if arguments.executor is None or arguments.rules is None:
        raise UsageError("name --executor and --rules")
    found: list[dict[str, Any]] = []
    if arguments.sweep:
        largest = parse_size(arguments.sweep_to)
        rules, found = sweep(site, arguments.executor, keys, largest, settings)
        write_rules(arguments.rules, rules)
        print(arguments.rules.read_text(encoding="utf-8"), end="", flush=True)
    return executor_variables(arguments.executor, arguments.rules) | dict(settings), found


def parse_settings(words: Sequence[str]) -> dict[str, str]:
    """Variables from `NAME=VALUE`.

    Raises:
        UsageError: A word has no `=`.
    """
    for word in words:
        if "=" not in word.lstrip("="):
            raise UsageError(f"--set {word}: write NAME=VALUE")
    return dict(word.split("=", 1) for word in words)


def bench_all(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Everything in order, as it goes into the report."""
    begin = time.monotonic()
    site = make_site(arguments, folder)
    sizes = size_ladder(parse_size(arguments.smallest), parse_size(arguments.largest), 2)
    keys = tuple((operation, size) for operation in arguments.operations for size in sizes)
    settings = parse_settings(arguments.settings)
    variables, swept = choose_variables(arguments, site, keys, settings)
    modes = (GRAPH,) if arguments.no_plain else (GRAPH, PLAIN)
    bench = Bench(site, keys, modes, variables, arguments.launches)
    checked = bench.prove()
    print(f"data of {checked} calls are right", flush=True)
    rows = run_rounds(bench, arguments.rounds)
    return {
        "rows": rows,
        "totals": totals(rows),
        "targets": judge(rows),
        "checked_calls": checked,
        "set": arguments.settings,
        "rules": arguments.rules.read_text(encoding="utf-8") if arguments.rules else "",
        "sweep": [row | {"rule": row["rule"] and row["rule"].line} for row in swept],
        "nccl": site.nccl,
        "ranks": site.ranks,
        "rounds": arguments.rounds,
        "seconds": time.monotonic() - begin,
    }


def parse_arguments() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--executor", type=Path, help="libtuccl-executor.so")
    parser.add_argument("--rules", type=Path, help="file for TUCCL_EXECUTOR_RULES")
    parser.add_argument("--sweep", action="store_true", help="find the rules first, write them")
    parser.add_argument("--sweep-to", default="64M", help="larger sizes are left to NCCL")
    parser.add_argument(
        "--set",
        dest="settings",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="further variables of the executor's processes, as NCCL_MIN_NCHANNELS=32",
    )
    parser.add_argument(
        "--operations",
        nargs="+",
        default=["all_reduce", "all_gather", "reduce_scatter", "alltoall"],
    )
    parser.add_argument("--from", dest="smallest", default="1K", help="smallest size")
    parser.add_argument("--to", dest="largest", default="1G", help="largest size, in steps of 2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--launches", type=int, default=5, help="of each key in each round")
    parser.add_argument("--no-plain", action="store_true", help="in CUDA graphs only")
    parser.add_argument("--in-place", action="store_true")
    parser.add_argument("--gpus", type=int, help="use the first N GPUs (default: all)")
    parser.add_argument("--nccl", help="path of libnccl.so.2 (default: the one that is found)")
    parser.add_argument("--limit", type=float, default=120, help="seconds until a job is killed")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    parser.add_argument("--svg", type=Path, help="draw the speedups")
    return parser.parse_args()


def main() -> int:
    """Exit code 0, 1 with a target missed, or 2 with one line on what could not run."""
    arguments = parse_arguments()
    try:
        with tempfile.TemporaryDirectory(prefix="tuccl-bench-") as folder:
            report = bench_all(arguments, Path(folder))
    except (JobError, TucclError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    rows = report["rows"]
    if arguments.json is not None:
        content = report | {"rows": [row.as_json() for row in rows]}
        arguments.json.write_text(json.dumps(content, indent=1), encoding="utf-8")
    if arguments.svg is not None:
        arguments.svg.write_text(draw(rows), encoding="utf-8")
    tell(rows, report["totals"], report["targets"])
    return 0 if all(target["holds"] for target in report["targets"]) else 1


if __name__ == "__main__":
    sys.exit(main())
