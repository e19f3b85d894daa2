#!/usr/bin/env python3
"""Start jobs with and without TUCCL_CHECK, by a shipped table and by one that is wrong on purpose.

    check_at_start.py DIR [--rounds 5] [--limit 200ms] [--json FILE]

DIR is a directory of `tuccl ship` for the GPUs of this host, with its `table.parquet`. Each round
runs five jobs, a process for each GPU: stock NCCL; the table; the table with the check; a table
whose schedules and settings are slow, which is made here of DIR's; and that with the check. Each
job starts two communicators, of which the second shows the check without what a process does once,
and times each key of the table that a communicator of all GPUs has, on the second one, in CUDA
graphs: what the host takes to launch a small call is more than the call.

It prints how long starts took and what was left out, and of each key of the wrong table the times
against stock NCCL without and with the check. Exit code 0: every start left the right table as it
is; every entry of the wrong table that is 1.2 times as slow as stock NCCL, or slower, was left out
in every start; calls of entries that were left out took the time of stock NCCL within 1 % in the
geometric mean; and all ranks ran the same. 1: one of these does not hold. Needs NVIDIA GPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import byref, c_int, c_void_p, memmove, sizeof
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from device_calls import Buffer, Cuda, DeviceError, Nccl, UniqueId  # noqa: E402
from executor_session import end_with_parent  # noqa: E402
from measuring_job import JobError, results_of, start_ranks, wait_for_all, without_tables  # noqa: E402
from rank_program import from_rank_zero, run_rank  # noqa: E402

from lookup_tables.bundles.bundle import read_bundle  # noqa: E402
from lookup_tables.bundles.bundle_writer import bundle_bytes  # noqa: E402
from lookup_tables.collective import Collective  # noqa: E402
from lookup_tables.table import (  # noqa: E402
    BuiltinConfig,
    Entry,
    NcclAlgorithm,
    NcclProtocol,
    Shape,
    Table,
)
from tuccl.errors import EngineError, TucclError  # noqa: E402
from tuccl.measuring.engines.nccl_environment import count_gpus  # noqa: E402
from tuccl.measuring.engines.nccl_library import find_nccl  # noqa: E402
from tuccl.measuring.engines.nccl_variables import PLUGIN_VARIABLE  # noqa: E402
from tuccl.quantities import format_size  # noqa: E402
from tuccl.runtime.executor_library import BUNDLE_VARIABLE, ExecutorLibrary  # noqa: E402
from tuccl.shipping.bench.contenders import ShippedTable, read_shipped_table  # noqa: E402

LIMIT_S = 300.0
"""Time limit of a job's processes."""
STOCK, RIGHT, CHECKED, WRONG, WRONG_CHECKED = CONTENDERS = (
    *("stock", "table", "table, checked", "wrong", "wrong, checked"),
)
FLOAT32, SUM = 7, 0
"""NCCL's codes (nccl.h)."""
MOST_BYTES = 64 << 20
"""Beyond it the check times nothing (docs/reference/executor.md)."""
SLOW = 1.2
"""Ratio to stock NCCL from which an entry must be left out."""
WITHIN = 0.01
_SAMPLES, _SAMPLE_US = 7, 4000.0
_LEFT = re.compile(r"left to NCCL: (\w+) of (\d+) to (\d+) bytes")
_TIMED = re.compile(r"check at start: (\d+) of (\d+) entries timed in (\d+) of")


@dataclass(frozen=True)
class Timed:
    """An entry that is timed, at the size that was tuned."""

    operation: Collective
    size_bytes: int
    min_bytes: int
    max_bytes: int
    stock_us: float
    """Time of stock NCCL, as the table has it."""
    schedule: bool
    """Whether a schedule won it."""

    @property
    def name(self) -> str:
        """The call, for people."""
        return f"{self.operation.value} {format_size(self.size_bytes)}"


def is_for(entry: Entry, ranks: int) -> bool:
    """Whether an entry is for a communicator of all GPUs here, and small enough for the check."""
    return entry.key.shape == Shape(ranks, 1, ranks) and entry.tuned_bytes <= MOST_BYTES


def timed_entries(table: Table, ranks: int) -> list[Timed]:
    """Return the entries of the communicator."""
    return [
        Timed(
            *(entry.key.operation, entry.tuned_bytes, entry.key.min_bytes, entry.key.max_bytes),
            stock_us=entry.default_time_us,
            schedule=entry.schedule is not None,
        )
        for entry in table.entries
        if is_for(entry, ranks)
    ]


def slowed(entry: Entry, smallest: Entry) -> Entry:
    """Return an entry with what suits other sizes.

    Schedules become that of the smallest size of their operation, on an eighth of the thread
    blocks; settings a ring of one channel, which is slow for large messages, or a tree by Simple,
    which is for small ones.
    """
    builtin = entry.builtin
    if builtin is not None:
        small = entry.tuned_bytes < 64 << 10
        trees = small and entry.key.operation is Collective.ALL_REDUCE
        builtin = BuiltinConfig(
            NcclAlgorithm.TREE if trees else NcclAlgorithm.RING,
            NcclProtocol.SIMPLE if small else NcclProtocol.LL,
            1,
        )
    schedule = entry.schedule
    if schedule is not None and smallest.schedule is not None:
        schedule = replace(smallest.schedule, nchannels=max(1, schedule.nchannels // 8))
    return replace(entry, builtin=builtin, schedule=schedule)


def wrong_bundle(shipped: ShippedTable, table: Table, ranks: int) -> bytes:
    """Return the bundle of the table with slow entries for the communicator of all GPUs.

    Raises:
        JobError: The table has no such entry.
    """
    if not timed_entries(table, ranks):
        raise JobError(f"{shipped.directory} has no table with entries for {ranks} GPUs")
    smallest: dict[Collective, Entry] = {}
    for entry in table.entries:
        if is_for(entry, ranks) and entry.schedule is not None:
            smallest.setdefault(entry.key.operation, entry)
    entries = tuple(
        slowed(entry, smallest.get(entry.key.operation, entry)) if is_for(entry, ranks) else entry
        for entry in table.entries
    )
    used = {entry.schedule.schedule for entry in entries if entry.schedule is not None}
    schedules = tuple(each for each in shipped.bundle.schedules if each.content_hash in used)
    wrong = replace(table, entries=entries, runners_up=(), schedules=schedules)
    return bundle_bytes(wrong, shipped.bundle.facts)


def environments(shipped: ShippedTable, wrong: Path, limit: str) -> dict[str, dict[str, str]]:
    """Return each contender's environment by its name."""
    bare = without_tables(os.environ)
    # What NCCL chooses by itself beside the table: under its process profile.
    stock = {**bare, **shipped.bundle.profile, PLUGIN_VARIABLE: "none"}
    # The executor's lines go to standard output, those of NCCL nowhere.
    told = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/dev/null"}
    table = {**bare, **shipped.variables, **told}
    crc = f"{read_bundle(wrong.read_bytes(), str(wrong)).crc:08x}"
    of_wrong = {**table, BUNDLE_VARIABLE: str(wrong), "TUCCL_BUNDLE_CRC": crc}
    check = {"TUCCL_CHECK": limit}
    every = (stock, table, table | check, of_wrong, of_wrong | check)
    return dict(zip(CONTENDERS, every, strict=True))


def run_ranks(
    program: Path, ranks: int, folder: Path, job: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[list[dict[str, Any]], str]:
    """Run a process of a program for each GPU; return the ranks' results, and what rank 0 said.

    Raises:
        JobError: A rank died or hung, or ranks ran different calls.
    """
    folder.mkdir()
    words = {"nccl": str(find_nccl(None, os.environ).path), "ranks": ranks, **job}
    started = start_ranks(program, folder, words, [environment] * ranks)
    results = results_of(folder, wait_for_all(started, time.monotonic() + LIMIT_S))
    if len({json.dumps(result["executor"]) for result in results}) != 1:
        raise JobError("the executor ran different calls on the ranks")
    return results, (folder / "out0").read_text("utf-8", "replace")


def warnings_in(said: str) -> list[str]:
    """Return the executor's warnings in what a rank said."""
    return [line for line in said.splitlines() if " WARN TuCCL" in line]


def run_job(
    given: argparse.Namespace, folder: Path, entries: list[Timed], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Run a process for each GPU; return what the slowest rank took, and what rank 0 said.

    Raises:
        JobError: A rank died or hung, or ranks ran different calls.
    """
    job = {
        "calls": [(each.operation.value, each.size_bytes) for each in entries],
        "expected_us": [each.stock_us for each in entries],
    }
    results, said = run_ranks(Path(__file__), given.ranks, folder, job, environment)
    # Of both communicators; what the second one said counts.
    checks = said.split("check at start: ")[1:] or [""]
    return {
        # The last rank to come waits for nobody.
        "starts_ms": [min(r["starts_ms"][i] for r in results) for i in range(2)],
        "times_us": [max(times) for times in zip(*(r["times_us"] for r in results), strict=True)],
        "executor": results[0]["executor"],
        "left_out": sorted(set(_LEFT.findall(checks[-1]))),
        "left_out_first": sorted(set(_LEFT.findall(checks[0]))),
        "timed": [list(map(int, match.groups())) for match in _TIMED.finditer(said)],
        "warnings": warnings_in(said),
    }


def rank_work(job: dict[str, Any], rank: int) -> dict[str, Any]:
    """Be a rank."""
    end_with_parent()
    cuda = Cuda(rank)
    nccl = Nccl(job["nccl"], as_seen=True)
    starts_ms, communicators = zip(*(join(job, nccl, rank, i) for i in range(2)), strict=True)
    stream = cuda.stream()
    send, receive = Buffer(cuda), Buffer(cuda)
    largest = max(size_bytes for _, size_bytes in job["calls"])
    addresses = send.reserve(largest), receive.reserve(largest)
    for buffer in (send, receive):
        buffer.fill(0, largest, stream)
    times_us: list[float] = []
    by_executor: list[bool] = []
    for operation, size_bytes in job["calls"]:
        count = max(1, size_bytes // (4 * Collective.named(operation).parts(job["ranks"])))

        def put(operation: str = operation, count: int = count) -> None:
            handles = communicators[-1], stream
            nccl.collective(operation, addresses, count, (FLOAT32, SUM, 0), handles)

        before = executor_calls()
        times_us.append(median_us(cuda, stream, put, job["expected_us"][len(times_us)]))
        by_executor.append(executor_calls() > before)
    for communicator in communicators:
        nccl.call("ncclCommDestroy", communicator)
    return {"starts_ms": starts_ms, "times_us": times_us, "executor": by_executor}


def join(job: dict[str, Any], nccl: Nccl, rank: int, number: int) -> tuple[float, c_void_p]:
    """Start a communicator of all ranks; return how long that took, in ms."""
    identifier, communicator = UniqueId(), c_void_p()
    if rank == 0:
        nccl.call("ncclGetUniqueId", byref(identifier))
    own = bytes(identifier) if rank == 0 else None
    told = from_rank_zero(Path(job["folder"]) / f"id-{number}", own)
    memmove(byref(identifier), told, sizeof(identifier))
    begin = time.perf_counter()
    words = byref(communicator), c_int(job["ranks"]), identifier, c_int(rank)
    nccl.call("ncclCommInitRank", *words)
    return 1e3 * (time.perf_counter() - begin), communicator


def executor_calls() -> int:
    """Return the calls that the executor ran in this process; 0 without one."""
    try:
        return ExecutorLibrary(chooses=False).calls
    except EngineError:
        return 0


def median_us(cuda: Cuda, stream: c_void_p, put: Callable[[], None], expected_us: float) -> float:
    """Return the median time of a call over graphs of many, each until the device is done.

    All ranks make as many calls, by what the table expects.
    """
    calls = max(5, min(400, round(_SAMPLE_US / max(expected_us, 1.0))))

    def put_all() -> None:
        for _ in range(calls):
            put()

    put()  # NCCL may connect ranks, which it can't in a capture.
    cuda.wait(stream)
    graph = cuda.captured(stream, put_all)
    samples = []
    for _ in range(1 + _SAMPLES):
        begin = time.perf_counter()
        cuda.launch(graph, stream)
        cuda.wait(stream)
        samples.append(1e6 * (time.perf_counter() - begin) / calls)
    cuda.end_graph(graph)
    return median(samples[1:])


def medians(jobs: list[dict[str, Any]], against: list[dict[str, Any]]) -> list[float]:
    """Return of each key the median over rounds of its time's ratio to that of another job."""
    pairs = [
        [one / other for one, other in zip(job["times_us"], stock["times_us"], strict=True)]
        for job, stock in zip(jobs, against, strict=True)
    ]
    return [median(ratios) for ratios in zip(*pairs, strict=True)]


def judge(found: Mapping[str, list[dict[str, Any]]], entries: list[Timed]) -> dict[str, Any]:
    """Return the verdicts, and the figures that they follow from."""
    slower = medians(found[WRONG], found[STOCK])
    checked = medians(found[WRONG_CHECKED], found[STOCK])
    left = [{tuple(each) for each in job["left_out"]} for job in found[WRONG_CHECKED]]
    keys: list[dict[str, Any]] = [
        {
            "key": entry.name,
            "runs": "schedule" if entry.schedule else "setting",
            "wrong": slower[i],
            "checked": checked[i],
            "left_out": sum(of_text(entry) in each for each in left),
        }
        for i, entry in enumerate(entries)
    ]
    missed = [key["key"] for key in keys if key["wrong"] >= SLOW and key["left_out"] < len(left)]
    after = [key["checked"] for key in keys if key["left_out"] == len(left)]
    lost = sorted({" ".join(each) for job in found[CHECKED] for each in job["left_out"]})
    kept = medians(found[CHECKED], found[RIGHT])
    after_check = geometric_mean(after) if after else float("nan")
    return {
        "right_table_left_out": lost,
        "right_table_time": geometric_mean(kept),
        "wrong_missed": missed,
        "wrong_slower": geometric_mean(key["wrong"] for key in keys),
        "after_check": after_check,
        "keys": keys,
        "right": not lost and not missed and bool(after) and abs(after_check - 1.0) <= WITHIN,
    }


def of_text(entry: Timed) -> tuple[str, str, str]:
    """Return an entry as the executor's line names it."""
    return entry.operation.value, str(entry.min_bytes), str(entry.max_bytes)


def report(found: Mapping[str, list[dict[str, Any]]], verdict: dict[str, Any]) -> None:
    """Print the figures."""
    for name, jobs in found.items():
        first, second = (median(job["starts_ms"][i] for job in jobs) for i in range(2))
        timed = [f"{of[0]} of {of[1]} in {of[2]} ms" for of in jobs[-1]["timed"]]
        print(
            f"{name:15} starts {first:7.0f} and {second:7.0f} ms"
            + (f"; timed {' and '.join(timed)}" if timed else "")
        )
    for line in {line for jobs in found.values() for job in jobs for line in job["warnings"]}:
        print(line[line.index("TuCCL") :])
    for key in verdict["keys"]:
        print(
            f"{key['key']:24} {key['runs']:8}  wrong {key['wrong']:6.3f}x of stock's time, "
            f"checked {key['checked']:6.3f}x, left out {key['left_out']} of {len(found[STOCK])}"
        )
    print(
        f"right table: left out {verdict['right_table_left_out'] or 'nothing'}, times with the "
        f"check {verdict['right_table_time']:.4f}x of those without"
    )
    print(
        f"wrong table: {verdict['wrong_slower']:.3f}x of stock's time; after the check "
        f"{verdict['after_check']:.4f}x; slow and not left out: {verdict['wrong_missed'] or 'none'}"
    )


def arguments(about: str | None, rounds: int) -> argparse.ArgumentParser:
    """Return a parser of what checks of a shipped table take."""
    parser = argparse.ArgumentParser(description=(about or "").split("\n", maxsplit=1)[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--json", type=Path, help="write everything to this file")
    return parser


@contextmanager
def contenders_of(
    given: argparse.Namespace, own_bundle: Callable[[ShippedTable, Table, int], bytes], limit: str
) -> Iterator[tuple[Table, dict[str, dict[str, str]], Path]]:
    """Yield a shipped table, its contenders' environments and a folder; set the ranks.

    Raises:
        JobError: The directory lacks the executor, or its table.
    """
    given.ranks = count_gpus(2)
    shipped = read_shipped_table(given.directory.resolve(), str(given.directory))
    if not shipped.has_executor or shipped.table is None:
        raise JobError(f"{given.directory} loads no executor, or has no table.parquet")
    with tempfile.TemporaryDirectory(prefix="tuccl-check-") as name:
        own = Path(name) / "own.tuccl"
        own.write_bytes(own_bundle(shipped, shipped.table, given.ranks))
        yield shipped.table, environments(shipped, own, limit), Path(name)


def conclude(given: argparse.Namespace, found: Mapping[str, Any]) -> int:
    """Write what was found, if that is wanted; return the exit code."""
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if found["verdict"]["right"] else 1


def run_check(
    main: Callable[[], int], work: Callable[[dict[str, Any], int], dict[str, Any]]
) -> None:
    """End with the check's exit code, or be a rank if this process was started as one."""
    if len(sys.argv) == 3 and sys.argv[1].endswith("job.json"):
        run_rank(work, DeviceError, TimeoutError)
        return
    try:
        sys.exit(main())
    except (JobError, TucclError) as error:
        sys.exit(f"{Path(sys.argv[0]).name}: {error}")


def main() -> int:
    """Run all rounds, print the figures, and return the exit code."""
    parser = arguments(__doc__, 5)
    parser.add_argument("--limit", default="200ms", help="TUCCL_CHECK")
    given = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
    with contenders_of(given, wrong_bundle, given.limit) as (table, of, folder):
        entries = timed_entries(table, given.ranks)
        for number in range(given.rounds):
            for contender, environment in of.items():
                here = folder / f"{number}-{CONTENDERS.index(contender)}"
                found[contender].append(run_job(given, here, entries, environment))
            print(f"round {number + 1} of {given.rounds}", file=sys.stderr, flush=True)
    verdict = judge(found, entries)
    report(found, verdict)
    return conclude(given, {"verdict": verdict, "jobs": found})


if __name__ == "__main__":
    run_check(main, rank_work)
