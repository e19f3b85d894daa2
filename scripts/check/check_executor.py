"""Compare the executor's results with NCCL's in the same processes, on the same data.

    check_executor.py --executor libtuccl-executor.so [--calls 20000] [--seed 1]
    check_executor.py --executor libtuccl-executor.so --part load --minutes 10
    check_executor.py --executor libtuccl-executor.so --part huge lifecycle

calls: random types, operations, counts (0, 1, odd, prime), offsets, in and out of place, streams,
graphs, 1 to all GPUs, and rules for the executor. Whole numbers, moved bytes and maxima have to be
the same bit for bit; sums of floats may differ by rounding. A call that failed is printed with
its number and seed: --first NUMBER --calls 1 runs it alone.
With --programs half of the calls that have schedules (in huge all) are interpreted instead of run
as a pattern.
load: minutes of such calls on several streams and in graphs, two communicators at once, compared on
the device, with communicators created again and growth of memory and descriptors.
With --nodes the ranks appear as those of several hosts, over TCP on loopback, and the executor runs
schedules across hosts: --nodes 2 are equal ones, --nodes 3+1 those of different sizes.
huge: more than 2^31 elements a rank. lifecycle: how communicators begin and end, case by case.

Exit code 0: all results are correct; 1: a result is wrong; 2: a part could not run or hung.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from executor_job import add_arguments, find_machine, run_job  # noqa: E402
from lifecycle_rank import CASES, IN_ONE_PROCESS  # noqa: E402
from measuring_job import JobError  # noqa: E402
from random_calls import OPERATIONS, REDUCTIONS, TYPES  # noqa: E402

from tuccl.errors import TucclError  # noqa: E402


def failures_of(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Failures of all ranks."""
    return [failure for result in results for failure in result["failures"]]


def check_calls(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run jobs until all calls are done or one fails."""
    begin = time.monotonic()
    taken: Counter[str] = Counter()
    by_ranks: Counter[str] = Counter()
    programs: set[str] = set()
    done = left = refused = jobs = 0
    failures: list[str] = []
    while not failures and done < arguments.calls:
        calls = min(arguments.calls_per_job, arguments.calls - done)
        words = {"part": "calls", "first": arguments.first + done, "calls": calls}
        results = run_job(arguments, folder / f"job{jobs}", words, processes=arguments.ranks)
        failures = failures_of(results)
        # Rank 0 takes part in every call.
        taken.update(results[0]["taken"])
        by_ranks.update(results[0]["by_ranks"])
        programs.update(results[0]["programs"])
        left += results[0]["left"]
        refused += results[0]["programs_left"]
        done += results[0]["calls"]
        jobs += 1
        seconds = time.monotonic() - begin
        print(f"{done} calls in {seconds:.0f} s, {taken.total()} by the executor", flush=True)
    if not taken and not failures:
        raise JobError("the executor ran none of them: nothing was checked")
    if arguments.programs is not None and not programs and not failures:
        raise JobError("the executor interpreted no schedule, though --programs names some")
    return {
        "calls": done,
        "by_executor": dict(sorted(taken.items())),
        "by_ranks": {int(ranks): by_ranks[ranks] for ranks in sorted(by_ranks, key=int)},
        "programs": len(programs),
        "programs_left_to_nccl": refused,
        "left_to_nccl": left,
        "failures": failures,
        "jobs": jobs,
    }


def check_load(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run one job for the whole time."""
    words = {
        "part": "load",
        "seconds": 60 * arguments.minutes,
        "seconds_between": min(20.0, 15 * arguments.minutes),
    }
    results = run_job(arguments, folder / "load", words, processes=arguments.ranks)
    first = results[0]
    if not any("by executor" in what for what in first["taken"]):
        raise JobError("the executor ran none of them: nothing was checked")
    return {
        "rounds": first["rounds"],
        "calls": first["calls"],
        "put": first["taken"],
        "statistics": [result["statistics"] for result in results],
        "growth": [result["growth"] for result in results],
        "failures": failures_of(results),
    }


def check_huge(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run one job for all messages."""
    words = {"part": "huge", "count": arguments.huge_count}
    results = run_job(arguments, folder / "huge", words, processes=arguments.ranks)
    first = results[0]
    return {
        "count": arguments.huge_count,
        "calls": first["calls"],
        "put": first["taken"],
        "seconds_of": first["seconds_of"],
        "failures": failures_of(results),
    }


def check_lifecycle(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run a job for each case, so that a hang does not stop the others."""
    found: dict[str, Any] = {"cases": {}, "failures": [], "errors": []}
    for case in arguments.cases:
        begin = time.monotonic()
        processes = 1 if case in IN_ONE_PROCESS else arguments.ranks
        words = {"part": "lifecycle", "case": case}
        try:
            results = run_job(arguments, folder / case, words, processes=processes)
            failures = failures_of(results)
            outcome = f"{len(failures)} wrong, {results[0]['calls']} calls by the executor"
            found["failures"] += failures
        except JobError as error:
            outcome = f"did not end: {error}"
            found["errors"].append(f"{case}: {error}")
        seconds = time.monotonic() - begin
        found["cases"][case] = {"outcome": outcome, "seconds": seconds}
        print(f"{case}: {outcome}, {seconds:.1f} s", flush=True)
    return found


CHECKS = {
    "calls": check_calls,
    "load": check_load,
    "huge": check_huge,
    "lifecycle": check_lifecycle,
}


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    add_arguments(parser, nodes="1", limit_s=300)
    parser.add_argument("--part", nargs="+", choices=CHECKS, default=["calls"])
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--minutes", type=float, default=10, help="of load")
    parser.add_argument("--calls-per-job", type=int, default=5000)
    parser.add_argument("--operations", nargs="+", choices=OPERATIONS, default=OPERATIONS)
    parser.add_argument("--types", nargs="+", choices=TYPES, default=TYPES)
    parser.add_argument("--reductions", nargs="+", choices=REDUCTIONS, default=REDUCTIONS)
    parser.add_argument(
        "--programs", type=Path, help="folder of write_programs.py: schedules to be interpreted too"
    )
    parser.add_argument("--largest", default="4M", help="bytes of the largest message")
    parser.add_argument("--huge-count", type=int, default=(1 << 31) + 5, help="of huge, a rank")
    parser.add_argument(
        "--cases", nargs="+", choices=CASES, default=list(CASES), help="of lifecycle"
    )
    parser.add_argument("--heartbeat", type=float, default=10, help="seconds between signs of life")
    return parser.parse_args()


def tell(part: str, found: Mapping[str, Any]) -> None:
    """Print the result of a part."""
    for what, calls in (found.get("by_executor") or found.get("put") or {}).items():
        print(f"{what:<44}{calls:>9}")
    if "by_ranks" in found:
        ranks = ", ".join(f"{calls} on {ranks}" for ranks, calls in found["by_ranks"].items())
        print(f"GPUs: {ranks}; {found['left_to_nccl']} left to NCCL")
        left = found["programs_left_to_nccl"]
        print(f"{found['programs']} schedules interpreted; {left} calls of theirs left to NCCL")
    for rank, statistics in enumerate(found.get("statistics", ())):
        if statistics:
            print(f"rank {rank} held first {statistics[0]}, last {statistics[-1]}")
    for failure in found["failures"]:
        print(f"WRONG: {failure}")
    for error in found.get("errors", ()):
        print(f"ERROR: {error}")
    what = ", ".join(f"{found[name]} {name}" for name in ("rounds", "calls") if name in found)
    ended = "not done" if found.get("errors") else "done"
    print(f"{part}: {what or ended}, {len(found['failures'])} wrong", flush=True)


def check(arguments: argparse.Namespace, part: str, folder: Path, report: dict[str, Any]) -> int:
    """Run a part and add it to the report; return its exit code."""
    begin = time.monotonic()
    try:
        found = CHECKS[part](arguments, folder)
    except JobError as error:
        found = {"failures": [], "errors": [str(error)]}
    report[part] = found | {"seconds": time.monotonic() - begin}
    tell(part, found)
    return 2 if found.get("errors") else 1 if found["failures"] else 0


def main() -> int:
    """Run all parts and write the report in any case; return the exit code."""
    arguments = parse_arguments()
    # SIGTERM must kill the ranks too.
    handler = signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    report: dict[str, Any] = {"seed": arguments.seed}
    code = 2
    try:
        find_machine(arguments, 2)
        report["ranks"] = arguments.ranks
        with tempfile.TemporaryDirectory(prefix="tuccl-check-") as folder:
            code = max([check(arguments, part, Path(folder), report) for part in arguments.part])
    except (TucclError, OSError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
    finally:
        words = ("all right", "something is wrong", "something did not run or did not end")
        report["verdict"] = words[code]
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
        print(f"VERDICT: {report['verdict']}", flush=True)
        signal.signal(signal.SIGTERM, handler)
    return code


if __name__ == "__main__":
    sys.exit(main())
