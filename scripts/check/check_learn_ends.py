#!/usr/bin/env python3
"""Kill, stop, abort, split or end jobs amid what they learn, beside jobs of stock NCCL.

    check_learn_ends.py DIR [--trials 50] [--first 0] [--seed 1] [--limit 30] [--json FILE]

DIR is a directory of `tuccl ship` for the GPUs of this host, with its `table.parquet`. Each trial
is a job with a process for each GPU that learns from a table without entries, whose runners-up are
DIR's entries and its runners-up (CALLS; sizes that DIR lacks race NCCL's settings). After a number
of calls, drawn so that short and long jobs are as likely, it comes to its end: the last rank is
killed (SIGKILL) or stopped (SIGSTOP); all ranks abort the communicator from a second thread; all
split it, reversed and, of four ranks or more, in two, make calls of whole numbers on all
communicators, compare them with NCCL's past the executor, and destroy them; or all destroy it with
calls on their streams. The ranks that are left watch their communicator as a framework does, and
must end within --limit seconds; of one that hangs a debugger prints the stacks. Every fifth job is
stock NCCL's.

It prints how each job ended, in how many seconds, and how many trials of the guard had ended.
Exit code 0: every job came to the end that was meant for it, all ranks ended, every result was
right, and no file of TuCCL's is left in /dev/shm; 1: one of these does not hold; 2: a job could
not start. Needs NVIDIA GPUs.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from ctypes import byref, c_int, c_void_p
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from check_at_start import (  # noqa: E402
    FLOAT32,
    STOCK,
    SUM,
    WRONG,
    conclude,
    contenders_of,
)
from check_ends import is_right, shared_files, watch_end  # noqa: E402
from check_guard import Call, Rank, judged_in  # noqa: E402
from check_learn import empty_bundle, learns  # noqa: E402
from device_calls import DeviceError  # noqa: E402
from ends_rank import Calls, Watch  # noqa: E402
from measuring_job import JobError, start_ranks  # noqa: E402
from rank_program import run_rank  # noqa: E402

from tuccl.errors import TucclError  # noqa: E402
from tuccl.measuring.engines.nccl_library import find_nccl  # noqa: E402

CALLS = (
    *(("all_reduce", 256 << 10), ("all_gather", 128 << 10)),
    *(("reduce_scatter", 1 << 20), ("all_reduce", 4 << 10)),
)
ENDS = ("killed", "stopped", "aborted", "split", "destroyed")
MOST_CALLS = 4000
AFTER_SPLIT = 600
"""Calls on all communicators after a split."""
OFFSETS = 1021
"""Places, 16 bytes apart as schedules need it, at which calls begin in turn."""
EVERY_STOCK = 5
STALL_S = 2.5


@dataclass(frozen=True)
class Trial:
    """One job and its end."""

    end: str
    after_calls: int
    stock: bool


def trials_of(count: int, seed: int) -> list[Trial]:
    """Return trials of all ends in turn, of which every fifth of each end is stock NCCL's."""
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    return [
        Trial(
            ENDS[number % len(ENDS)],
            round(math.exp(draw.uniform(0, math.log(MOST_CALLS)))),
            stock=number // len(ENDS) % EVERY_STOCK == EVERY_STOCK - 1,
        )
        for number in range(count)
    ]


def run_trial(
    given: argparse.Namespace, folder: Path, trial: Trial, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Run a job to its end; return how its ranks ended, and how far it had learned.

    Raises:
        JobError: A rank cannot be started.
    """
    verdicts = folder / "verdicts"
    verdicts.mkdir(parents=True)
    watched = {**environment, "TUCCL_GUARD_LOG": str(verdicts)}
    words = {"nccl": str(find_nccl(None, os.environ).path), "ranks": given.ranks, **asdict(trial)}
    processes = start_ranks(Path(__file__), folder, words, [watched] * given.ranks)
    left = range(given.ranks - (trial.end in {"killed", "stopped"}))

    def bring_about() -> Sequence[int]:
        deadline = time.monotonic() + given.limit
        while not all((folder / f"ending{rank}").exists() for rank in range(given.ranks)):
            if time.monotonic() > deadline or any(each.poll() is not None for each in processes):
                break  # Whether all ranks came so far is looked at when they have ended.
            time.sleep(0.01)
        return left

    found = watch_end(folder, processes, bring_about, given.limit)
    return {
        **found,
        "trial": asdict(trial),
        "right": is_right(found)
        and not failures_in(found)
        and is_meant(found, folder, trial, given.ranks),
        "concluded": sum(len(key.verdicts) for key in judged_in(verdicts)),
    }


def is_meant(found: Mapping[str, Any], folder: Path, trial: Trial, ranks: int) -> bool:
    """Whether all ranks came to the trial's end, and ended for no other reason."""
    if not all((folder / f"ending{rank}").exists() for rank in range(ranks)):
        return False
    why = {result["why"] for result in found["ranks"].values()}
    match trial.end:
        case "split" | "destroyed":
            return why == {"over"}
        case "aborted":  # Who aborts later may have lost its peer before.
            return "told to" in why
    return True


def failures_in(found: Mapping[str, Any]) -> list[str]:
    """Return what ranks found wrong."""
    return [failure for result in found["ranks"].values() for failure in result.get("failures", ())]


class EndingRank(Rank):
    """A rank whose job comes to its end after some calls."""

    def __init__(self, job: dict[str, Any], rank: int) -> None:
        super().__init__(job, rank)
        largest = max(size_bytes for _, size_bytes in CALLS)
        # Calls begin at other numbers, so that no result is that of an earlier call.
        numbers = np.random.default_rng(rank).integers(0, 8, largest // 4 + 4 * OFFSETS)
        self.buffers = [self.buffer(4 * numbers.size), self.buffer(largest), self.buffer(largest)]
        self.buffers[0].write(0, numbers.astype(np.float32))

    def run(self) -> dict[str, Any]:
        """Make calls until the end, or until there is trouble; return the result."""
        calls = Calls(self.cuda, self.calls)
        words = self.communicator, calls, self.folder, self.rank, STALL_S
        result = Watch(self.seen, *words).until_the_end(lambda _: None)
        # After an abort of calls that hang, the device may be stuck.
        if result["why"] == "over" and (different := self.different_bytes()):
            result["failures"].append(f"{different} bytes differ from NCCL's")
        return result

    @property
    def folder(self) -> Path:
        """The job's folder."""
        return Path(self.job["folder"])

    def calls(self, stream: c_void_p) -> Iterator[None]:
        """Yield after each call, until the end is brought about and what follows is done."""
        numbers = itertools.count()
        for _ in range(self.job["after_calls"]):
            self.call(self.communicator, next(numbers), stream)
            yield
        (self.folder / f"ending{self.rank}").touch()
        match self.job["end"]:
            case "killed" | "stopped" if self.rank == self.job["ranks"] - 1:
                by = signal.SIGKILL if self.job["end"] == "killed" else signal.SIGSTOP
                os.kill(os.getpid(), by)
            case "aborted":
                (self.folder / f"abort{self.rank}").touch()
            case "split":
                yield from self.split(stream)
                return
            case "destroyed":
                for _ in CALLS:
                    self.call(self.communicator, next(numbers), stream)
                return
        while True:
            self.call(self.communicator, next(numbers), stream)
            yield

    def split(self, stream: c_void_p) -> Iterator[None]:
        """Split the communicator, yield after compared calls on all, and destroy the children."""
        colors = [0, self.rank % 2] if self.job["ranks"] >= 4 else [0]
        communicators = [self.communicator]
        for color in colors:
            child = c_void_p()
            words = c_int(color), c_int(-self.rank), byref(child), c_void_p()
            self.seen.call("ncclCommSplit", self.communicator, *words)
            communicators.append(child)
        for number in range(AFTER_SPLIT):
            for communicator in communicators:
                self.call(communicator, number, stream, compared=True)
                yield
        for child in communicators[1:]:
            self.seen.call("ncclCommDestroy", child)

    def call(
        self, communicator: c_void_p, number: int, stream: c_void_p, *, compared: bool = False
    ) -> None:
        """Put a call on a stream, and if it is compared, the same past the executor."""
        name, size_bytes = CALLS[number % len(CALLS)]
        call = Call(name, self.count_of(name, size_bytes), (FLOAT32, SUM, 0), stream)
        send, own, other = (buffer.reserve(0) for buffer in self.buffers)
        handles = communicator, stream
        send += 16 * (number % OFFSETS)
        self.seen.collective(name, (send, own), call.count, call.codes, handles)
        if compared:
            self.real.collective(name, (send, other), call.count, call.codes, handles)
            self.compare((own, other), call)


def report(done: Sequence[Mapping[str, Any]]) -> None:
    """Print the seconds of each end, of jobs that learn and of stock NCCL's."""
    for end in ENDS:
        for stock in (False, True):
            of = [
                each
                for each in done
                if each["trial"]["end"] == end and each["trial"]["stock"] == stock
            ]
            if of:
                times = [each["seconds"] for each in of]
                print(
                    f"{end:10} {STOCK if stock else 'learning':9} {len(of):3} jobs, "
                    f"{sum(each['right'] for each in of):3} ended, in {median(times):.1f} s "
                    f"({min(times):.1f} to {max(times):.1f})"
                )


def run_trials(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Run all trials, and print how each ended.

    Raises:
        JobError: A job could not start, or the directory lacks what it needs.
    """
    done = []
    with contenders_of(given, empty_bundle, "0ms") as (_, of, parent):
        trials = trials_of(given.first + given.trials, given.seed)[given.first :]
        for number, trial in enumerate(trials, given.first):
            folder = parent / str(number)
            environment = of[STOCK] if trial.stock else of[WRONG] | learns(folder)
            found = run_trial(given, folder, trial, environment)
            why = sorted({result["why"] for result in found["ranks"].values()})
            print(
                f"{number}: {'stock, ' if trial.stock else ''}{trial.end} after "
                f"{trial.after_calls} calls, {found['concluded']} trials concluded: "
                f"{'ended' if found['right'] else 'NOT RIGHT'} in {found['seconds']:.1f} s "
                f"({', '.join(why)})",
                flush=True,
            )
            for text in (
                *failures_in(found),
                *found["outputs"].values(),
                *found["stacks"].values(),
            ):
                print(f"  {text}", flush=True)
            done.append(found)
    return done


def main() -> int:
    """Run all trials and print what they show; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--json", type=Path, help="write everything to this file")
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=30, help="seconds in which ranks must end")
    given = parser.parse_args()
    files = shared_files()
    try:
        done = run_trials(given)
    except (JobError, TucclError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    time.sleep(1)
    left = sorted(shared_files() - files)
    report(done)
    print(f"left in /dev/shm: {left or 'nothing'}")
    right = all(each["right"] for each in done) and not any("tuccl" in name for name in left)
    return conclude(given, {"verdict": {"right": right, "left": left}, "trials": done})


def be_rank() -> None:
    """Be a rank, and leave without exit handlers, which would wait for peers that are gone."""
    result = run_rank(lambda job, rank: EndingRank(job, rank).run(), DeviceError, TimeoutError)
    sys.stdout.flush()
    os._exit(1 if "error" in result or result["failures"] else 0)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].endswith("job.json"):
        be_rank()
    sys.exit(main())
