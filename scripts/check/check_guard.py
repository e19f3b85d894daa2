#!/usr/bin/env python3
"""Run jobs with TUCCL_GUARD, with TUCCL_CHECK and without, by a right table and by a wrong one.

    check_guard.py DIR [--rounds 5] [--steps 400] [--calls 20000] [--compute 64M] [--json FILE]

DIR is a directory of `tuccl ship` for the GPUs of this host, with its `table.parquet`. Each round
runs seven jobs, a process for each GPU: stock NCCL; the table, alone, with the check at start and
with the guard; and so a table whose schedules and settings are slow, which is made here of DIR's.
The check has 200 ms. A step makes each call of the table that a communicator of all GPUs has,
eagerly, on one stream, while another one reads twice --compute bytes; the next step begins when
both have ended. The host is four steps ahead at most. Steps count from the 200th on.

Then --calls random calls with either table and the guard: whole numbers of float32, from eager
calls, groups and CUDA graphs, on two streams. Each is made twice, as the job makes it and by NCCL
past the executor, and compared bit for bit on the device.

It prints the steps' times, what was left out, and how often a rank waited for a conclusion. Exit
code 0: with the wrong table and the check or the guard a step takes the time of stock NCCL within
1 %, or less; with the right one it is not slower than alone by 1 %, nor beyond the noise by half of
that; no random call differs; and all ranks ran the same. 1: one of these does not hold. Needs
NVIDIA GPUs.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Mapping, Sequence
from ctypes import c_void_p
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from check_at_start import (  # noqa: E402
    CHECKED,
    FLOAT32,
    MOST_BYTES,
    RIGHT,
    STOCK,
    SUM,
    WRONG,
    WRONG_CHECKED,
    arguments,
    conclude,
    contenders_of,
    executor_calls,
    join,
    run_check,
    run_ranks,
    timed_entries,
    warnings_in,
    wrong_bundle,
)
from device_calls import Buffer, Cuda, Nccl  # noqa: E402
from executor_session import end_with_parent  # noqa: E402

from lookup_tables.collective import Collective  # noqa: E402
from tuccl.quantities import parse_size  # noqa: E402
from tuccl.reports.ratios import gain_of_rounds  # noqa: E402
from tuccl.reports.verdicts import JudgedKey, VerdictKind, read_verdicts  # noqa: E402

GUARDED, WRONG_GUARDED = "table, guarded", "wrong, guarded"
NAMES = (STOCK, RIGHT, CHECKED, GUARDED, WRONG, WRONG_CHECKED, WRONG_GUARDED)
LIMIT = "200ms"
"""Of the check."""
FIRST_STEP, BLOCK = 200, 20
"""Steps before those that count, and in each time that is taken."""
AHEAD = 4
"""Steps after which the host waits, as a job that reads its loss."""
WITHIN, NOISE = 0.01, 0.005
MAX = 2
"""NCCL's code (nccl.h)."""
MOST_RANDOM_BYTES = 1 << 20
WAYS = ("eager", "group", "graph")
_END = re.compile(
    r"guard: (\d+) sizes in (\d+) calls, (\d+) reports, (\d+) sizes left to NCCL, (\d+) waits"
)


def job_of(given: argparse.Namespace, part: str, first_step: int) -> dict[str, Any]:
    """Return what ranks are to do; `first_step` is the first one whose time counts."""
    return {
        "part": part,
        "keys": given.keys,
        "steps": given.steps,
        "first_step": first_step,
        "calls": given.calls,
        "compute": given.compute,
    }


def found_in(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the slowest rank's time of each block, and the bytes that differ on any rank."""
    return {
        "times_us": [
            max(of_block) for of_block in zip(*(r["times_us"] for r in results), strict=True)
        ],
        "different_bytes": sum(result["different_bytes"] for result in results),
    }


def run_job(
    given: argparse.Namespace, folder: Path, part: str, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Run a process for each GPU; return what rank 0 found and said.

    Raises:
        JobError: A rank died or hung, or ranks ran different calls.
    """
    verdicts = folder.with_name(f"{folder.name}-verdicts")
    verdicts.mkdir(parents=True)
    watched = {**environment, "TUCCL_GUARD_LOG": str(verdicts)}
    job = job_of(given, part, FIRST_STEP)
    results, said = run_ranks(Path(__file__), given.ranks, folder, job, watched)
    return {
        **found_in(results),
        "executor_calls": results[0]["executor"],
        "left_out": [
            [key.operation.value, key.size_bytes]
            for key in judged_in(verdicts)
            for each in key.verdicts
            if each.verdict is VerdictKind.LEFT_OUT
        ],
        "ends": [list(map(int, found)) for found in _END.findall(said)],
        "warnings": warnings_in(said),
    }


def judged_in(folder: Path) -> tuple[JudgedKey, ...]:
    """Return the sizes that processes judged which wrote their verdicts to a folder."""
    return read_verdicts(folder).keys if any(folder.iterdir()) else ()


@dataclass(frozen=True)
class Call:
    """A random call."""

    name: str
    count: int
    codes: tuple[int, int, int]
    stream: c_void_p


class Rank:
    """A rank, its communicator and streams."""

    def __init__(self, job: dict[str, Any], rank: int) -> None:
        end_with_parent()
        self.job, self.rank = job, rank
        self.cuda = Cuda(rank)
        self.seen = Nccl(job["nccl"], as_seen=True)
        self.real = Nccl(job["nccl"], as_seen=False)
        self.communicator = join(job, self.seen, rank, 0)[1]
        self.streams = self.cuda.stream(), self.cuda.stream()
        self.cuda.load_compare()
        self.counter = Buffer(self.cuda)
        self.counter.reserve(8)
        self.counter.write(0, np.zeros(1, np.uint64))

    def buffer(self, size_bytes: int) -> Buffer:
        """Return zeros."""
        made = Buffer(self.cuda)
        made.reserve(size_bytes)
        made.fill(0, size_bytes, self.streams[0])
        self.cuda.wait(self.streams[0])
        return made

    def different_bytes(self) -> int:
        """Return in how many bytes compared results differ so far; no call may run."""
        return int(self.counter.read(0, 8).view(np.uint64)[0])

    def count_of(self, operation: str, size_bytes: int) -> int:
        """Return the elements of a call, as NCCL counts them."""
        parts = Collective.named(operation).parts(self.job["ranks"])
        return max(1, size_bytes // (4 * parts))

    def steps(self) -> dict[str, Any]:
        """Make all steps; return the times of those that count, by block."""
        largest = max(size_bytes for _, size_bytes in self.job["keys"])
        send, receive = self.buffer(largest), self.buffer(largest)
        addresses = send.reserve(0), receive.reserve(0)
        read = self.buffer(self.job["compute"])
        calls, computation = self.streams
        counts = [(name, self.count_of(name, size)) for name, size in self.job["keys"]]
        times_us: list[float] = []
        begin = time.perf_counter()
        for step in range(self.job["steps"]):
            if step >= self.job["first_step"] and step % BLOCK == 0:
                self.cuda.wait(calls)
                now = time.perf_counter()
                times_us.append(1e6 * (now - begin) / BLOCK)
                begin = now
            if step % AHEAD == 0:
                self.cuda.wait(calls)
            both = read.reserve(0), read.reserve(0)
            counter = self.counter.reserve(0)
            self.cuda.compare(both, self.job["compute"], counter, computation)
            for name, count in counts:
                handles = self.communicator, calls
                self.seen.collective(name, addresses, count, (FLOAT32, SUM, 0), handles)
            self.cuda.after(calls, computation)
            self.cuda.after(computation, calls)
        self.cuda.wait(calls)
        times_us.append(1e6 * (time.perf_counter() - begin) / BLOCK)
        return {"times_us": times_us[1:], "different_bytes": 0}

    def random_calls(self) -> dict[str, Any]:
        """Make random calls; return in how many bytes results differ from NCCL's."""
        drawn = random.Random(1)  # noqa: S311 - repeatable
        keys = [tuple(key) for key in self.job["keys"]]
        drawn.shuffle(keys)
        # Few of them, so that each comes often enough for trials.
        often = [key for key in keys if key[1] <= MOST_RANDOM_BYTES][:6] or keys[:6]
        largest = max(size_bytes for _, size_bytes in often)
        numbers = np.random.default_rng(7 + self.rank).integers(0, 8, 2 * largest // 4)
        send = self.buffer(2 * largest)
        send.write(0, numbers.astype(np.float32))
        receives = [(self.buffer(largest), self.buffer(largest)) for _ in self.streams]
        for number in range(self.job["calls"]):
            name, size_bytes = drawn.choice(often)
            if drawn.random() < 0.1:
                size_bytes = drawn.randrange(1, largest)
            way = drawn.choices(WAYS, (90, 8, 2))[0]
            which = int(drawn.random() < 0.1)
            source = send.reserve(0) + 4 * drawn.randrange(largest // 4)
            codes = FLOAT32, drawn.choice((SUM, MAX)), 0
            call = Call(name, self.count_of(name, size_bytes), codes, self.streams[which])
            own, other = (each.reserve(0) for each in receives[which])
            self.make(way, (source, own), call)
            self.put(self.real, (source, other), call)
            # What a rank has there that receives nothing is undefined.
            if name != "reduce" or self.rank == 0:
                self.compare((own, other), call)
            if number % 500 == 499:
                for stream in self.streams:
                    self.cuda.wait(stream)
        for stream in self.streams:
            self.cuda.wait(stream)
        return {"times_us": [], "different_bytes": self.different_bytes()}

    def put(self, nccl: Nccl, addresses: tuple[int, int], call: Call) -> None:
        """Put a call on its stream."""
        handles = self.communicator, call.stream
        nccl.collective(call.name, addresses, call.count, call.codes, handles)

    def make(self, way: str, addresses: tuple[int, int], call: Call) -> None:
        """Make a call as the job makes it, in one of the ways."""
        if way == "graph":
            # The job has to order a graph after the work of other streams.
            for each in self.streams:
                self.cuda.wait(each)
            self.cuda.run_as_graph(call.stream, lambda: self.put(self.seen, addresses, call))
            return
        if way == "group":
            self.seen.call("ncclGroupStart")
        self.put(self.seen, addresses, call)
        if way == "group":
            self.seen.call("ncclGroupEnd")

    def compare(self, addresses: tuple[int, int], call: Call) -> None:
        """Count the bytes in which two results of a call differ."""
        collective = Collective.named(call.name)
        parts = 1 if collective.output_is_part else collective.parts(self.job["ranks"])
        size_bytes = 4 * call.count * parts
        self.cuda.compare(addresses, size_bytes, self.counter.reserve(0), call.stream)


def rank_work(job: dict[str, Any], rank: int) -> dict[str, Any]:
    """Be a rank."""
    ranks = Rank(job, rank)
    found = ranks.steps() if job["part"] == "steps" else ranks.random_calls()
    ranks.seen.call("ncclCommDestroy", ranks.communicator)
    return {**found, "executor": executor_calls()}


def step_us(job: Mapping[str, Any]) -> float:
    """Return the time of a step of a job."""
    return float(median(job["times_us"]))


def judge(
    steps: Mapping[str, list[dict[str, Any]]], randoms: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    """Return the verdicts, and the figures that they follow from."""

    def ratio(own: str, base: str) -> dict[str, float]:
        own_us, base_us = ([step_us(job) for job in steps[name]] for name in (own, base))
        gain = gain_of_rounds(own_us, base_us)
        return {"ratio": gain.ratio, "low": gain.low, "high": gain.high}

    ratios = {
        "wrong": ratio(WRONG, STOCK),
        "wrong_checked": ratio(WRONG_CHECKED, STOCK),
        "wrong_guarded": ratio(WRONG_GUARDED, STOCK),
        "table": ratio(RIGHT, STOCK),
        "checked": ratio(CHECKED, RIGHT),
        "guarded": ratio(GUARDED, RIGHT),
    }
    reports = {name: sum(end[2] for end in job["ends"]) for name, job in randoms.items()}
    different = {name: job["different_bytes"] for name, job in randoms.items()}
    return {
        "ratios": ratios,
        "random_reports": reports,
        "different_bytes": different,
        "right": all(
            ratios[name]["ratio"] <= 1.0 + WITHIN
            for name in ("wrong_checked", "wrong_guarded", "checked", "guarded")
        )
        and all(ratios[name]["low"] <= 1.0 + NOISE for name in ("checked", "guarded"))
        and not any(different.values())
        and all(reports.values()),
    }


def report(
    steps: Mapping[str, list[dict[str, Any]]],
    randoms: Mapping[str, dict[str, Any]],
    verdict: dict[str, Any],
) -> None:
    """Print the figures."""
    for name, jobs in steps.items():
        times = [step_us(job) for job in jobs]
        print(f"{name:15} step {median(times):10.1f} us ({min(times):.1f} to {max(times):.1f})")
    for name, jobs in (*steps.items(), *((f"random, {k}", [v]) for k, v in randoms.items())):
        for number, job in enumerate(jobs):
            for sizes, calls, reports, left, waits in job["ends"]:
                print(
                    f"{name}, round {number + 1}: {sizes} sizes in {calls} calls, {reports} "
                    f"reports, {left} left to NCCL, {waits} waits"
                )
    for line in dict.fromkeys(line for job in steps[GUARDED] for line in job["warnings"]):
        print(f"{GUARDED}: {line[line.index('TuCCL') :]}")
    for line in steps[WRONG_GUARDED][-1]["warnings"]:
        print(f"{WRONG_GUARDED}: {line[line.index('TuCCL') :]}")
    for name, found in verdict["ratios"].items():
        base = "the table's" if name in {"checked", "guarded"} else "stock NCCL's"
        print(
            f"{name:15} {found['ratio']:.4f}x of {base} step ({found['low']:.4f} to "
            f"{found['high']:.4f})"
        )
    for name, count in verdict["different_bytes"].items():
        print(f"random calls, {name}: {count} bytes differ from NCCL's")


def job_arguments(about: str | None, rounds: int, steps: int) -> argparse.ArgumentParser:
    """Return a parser of what checks in a job's steps take."""
    parser = arguments(about, rounds)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--calls", type=int, default=20_000, help="random ones, with each table")
    parser.add_argument("--compute", type=parse_size, default=64 << 20)
    return parser


def main() -> int:
    """Run all jobs, print the figures, and return the exit code."""
    parser = job_arguments(__doc__, rounds=5, steps=400)
    parser.add_argument("--most-bytes", type=parse_size, default=MOST_BYTES, help="of a call")
    given = parser.parse_args()
    steps: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES}
    randoms: dict[str, dict[str, Any]] = {}
    with contenders_of(given, wrong_bundle, LIMIT) as (table, checked, folder):
        given.keys = [
            (each.operation.value, each.size_bytes)
            for each in timed_entries(table, given.ranks)
            if each.size_bytes <= given.most_bytes
        ]
        of = guarded_environments(checked)
        for number in range(given.rounds):
            for i, (contender, environment) in enumerate(of.items()):
                progress = f"round {number + 1} of {given.rounds}: {contender}"
                print(progress, file=sys.stderr, flush=True)
                here = folder / f"{number}-{i}"
                steps[contender].append(run_job(given, here, "steps", environment))
        for contender in (GUARDED, WRONG_GUARDED):
            here = folder / f"random-{len(randoms)}"
            print(f"random calls: {contender}", file=sys.stderr, flush=True)
            randoms[contender] = run_job(given, here, "random", of[contender])
    verdict = judge(steps, randoms)
    report(steps, randoms, verdict)
    return conclude(given, {"verdict": verdict, "steps": steps, "random": randoms})


def guarded_environments(checked: Mapping[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Return each contender's environment by its name, given those of check_at_start.py."""
    guard = {"TUCCL_GUARD": "1"}
    return {
        STOCK: checked[STOCK],
        RIGHT: checked[RIGHT],
        CHECKED: checked[CHECKED],
        GUARDED: checked[RIGHT] | guard,
        WRONG: checked[WRONG],
        WRONG_CHECKED: checked[WRONG_CHECKED],
        WRONG_GUARDED: checked[WRONG] | guard,
    }


if __name__ == "__main__":
    run_check(main, rank_work)
