"""Holds the executor against NCCL: random calls, both in the same processes on the same data.

Types, operations, counts (0, 1, odd, prime), offsets, in and out of place, streams, graphs, 2 to
all GPUs, and what the executor is to run them with are drawn at random. Whole numbers, moved bytes
and maxima have to be the same bit for bit; sums of floats may be rounded otherwise.

    check_executor.py --executor libtuccl-executor.so [--calls 20000] [--minutes 10] [--seed 1]

Jobs of new processes follow one another until both the calls and the minutes are done. A call that
failed is printed with its number and seed: --first NUMBER --calls 1 runs it alone. Exit code 0 when
all are right, 1 when one is not, 2 when something could not run or hung.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from measuring_job import TAKEN_OUT, JobError, wait_for_all  # noqa: E402
from random_calls import OPERATIONS, REDUCTIONS, TYPES, Wanted  # noqa: E402
from runtime_sweep import executor_variables  # noqa: E402

from tuccl.errors import TucclError  # noqa: E402
from tuccl.measuring.executor_library import NOTHING  # noqa: E402
from tuccl.measuring.nccl_environment import count_gpus  # noqa: E402
from tuccl.measuring.nccl_library import find_nccl  # noqa: E402
from tuccl.sizes import parse_size  # noqa: E402


def run_job(
    arguments: argparse.Namespace, wanted: Wanted, folder: Path, first: int, calls: int
) -> list[dict[str, Any]]:
    """What each rank of one job found.

    Raises:
        JobError: A rank died or hung; says which and how its output ends.
    """
    folder.mkdir()
    nccl = find_nccl(arguments.nccl).path.resolve()
    job = {
        "folder": str(folder),
        "nccl": str(nccl),
        "ranks": wanted.ranks,
        "wanted": asdict(wanted),
        "seed": arguments.seed,
        "first": first,
        "calls": calls,
    }
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    rules = folder / "rules.txt"
    rules.write_text(NOTHING, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in TAKEN_OUT}
    environment |= executor_variables(arguments.executor, rules)
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, str(ROOT / "scripts" / "executor_rank.py"), str(folder / "job.json")]
    processes = []
    for rank in range(wanted.ranks):
        with (folder / f"out{rank}").open("wb") as out:
            processes.append(
                subprocess.Popen(
                    [*command, str(rank)], env=environment, stdout=out, stderr=subprocess.STDOUT
                )
            )
    wait_for_all(processes, time.monotonic() + arguments.limit)
    return collect(folder, wanted.ranks)


def collect(folder: Path, ranks: int) -> list[dict[str, Any]]:
    """The ranks' results; what one found wrong counts for more than that others hang then.

    Raises:
        JobError: One has none, and none found anything wrong.
    """
    results, missing = [], []
    for rank in range(ranks):
        path = folder / f"result{rank}.json"
        result = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        if result is None or "error" in result:
            output = (folder / f"out{rank}").read_text(encoding="utf-8", errors="replace")
            why = "died or hung" if result is None else result["error"]
            missing.append(f"rank {rank}: {why}; its output ends: {output[-800:]!r}")
        else:
            results.append(result)
    if missing and not any(result["failures"] for result in results):
        raise JobError("\n".join(missing))
    return results


def check(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Jobs until calls and minutes are done, or something is wrong."""
    wanted = Wanted(
        tuple(arguments.operations),
        tuple(arguments.types),
        tuple(arguments.reductions),
        arguments.gpus or count_gpus(2),
        parse_size(arguments.largest),
    )
    begin = time.monotonic()
    taken: Counter[str] = Counter()
    done = left = jobs = 0
    failures: list[str] = []
    while not failures and (
        done < arguments.calls or time.monotonic() - begin < 60 * arguments.minutes
    ):
        calls = min(arguments.calls_per_job, max(1, arguments.calls - done))
        if done >= arguments.calls:
            calls = arguments.calls_per_job
        results = run_job(arguments, wanted, folder / f"job{jobs}", arguments.first + done, calls)
        failures = [failure for result in results for failure in result["failures"]]
        # Rank 0 is part of every call.
        taken.update(results[0]["taken"])
        left += results[0]["left"]
        done += results[0]["calls"]
        jobs += 1
        seconds = time.monotonic() - begin
        print(f"{done} calls in {seconds:.0f} s, {taken.total()} by the executor", flush=True)
    return {
        "calls": done,
        "by_executor": dict(sorted(taken.items())),
        "left_to_nccl": left,
        "failures": failures,
        "jobs": jobs,
        "ranks": wanted.ranks,
        "seed": arguments.seed,
        "seconds": time.monotonic() - begin,
    }


def parse_arguments() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--executor", type=Path, required=True, help="libtuccl-executor.so")
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--minutes", type=float, default=0, help="go on as long as this at least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first call")
    parser.add_argument("--calls-per-job", type=int, default=5000)
    parser.add_argument("--operations", nargs="+", choices=OPERATIONS, default=OPERATIONS)
    parser.add_argument("--types", nargs="+", choices=TYPES, default=TYPES)
    parser.add_argument("--reductions", nargs="+", choices=REDUCTIONS, default=REDUCTIONS)
    parser.add_argument("--largest", default="4M", help="bytes of the largest message")
    parser.add_argument("--gpus", type=int, help="use the first N GPUs (default: all)")
    parser.add_argument("--nccl", help="path of libnccl.so.2 (default: the one that is found)")
    parser.add_argument("--limit", type=float, default=300, help="seconds until a job is killed")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    return parser.parse_args()


def main() -> int:
    """Exit code as the docstring of this file has it."""
    arguments = parse_arguments()
    try:
        with tempfile.TemporaryDirectory(prefix="tuccl-check-") as folder:
            found = check(arguments, Path(folder))
    except (JobError, TucclError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    for what, calls in found["by_executor"].items():
        print(f"{what:<36}{calls:>8}")
    for failure in found["failures"]:
        print(f"WRONG: {failure}")
    print(f"{found['left_to_nccl']} calls left to NCCL, {len(found['failures'])} wrong")
    if not found["by_executor"]:
        print("the executor ran none of them: nothing was checked", file=sys.stderr)
        return 2
    return 1 if found["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
