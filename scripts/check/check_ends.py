"""Kill, stop or abort a rank in the middle of calls, and see whether every other rank ends.

    check_ends.py --executor libtuccl-executor.so --nodes 2 [--share-gpus] [--trials 14] [--seed 1]

Ranks make calls by one schedule in a loop. After a random time the last rank is killed (SIGKILL),
stopped (SIGSTOP), or all are told to abort from a second thread. The ranks that are left watch
their communicator as a framework does, abort it, and must end within --limit seconds; of one that
hangs a debugger tells the stacks. The trials go through all schedules across nodes and the three
ends; every seventh one is NCCL's own call, to compare with. Under MPS the death of a process fails
the others on its GPU, too (CUDA error 719), and new ones are refused for some seconds (807): such a
start is tried again. Memory of the GPUs and files of /dev/shm are compared before and after.

Exit code 0: all ranks ended and left no file of TuCCL's; 1: not so; 2: a job could not start.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from executor_job import (  # noqa: E402
    add_arguments,
    find_machine,
    start_job,
    write_schedules,
)
from measuring_job import JobError, end_of_output, result_of  # noqa: E402

from tuccl.errors import TucclError  # noqa: E402

M = 1 << 20
ENDS = ("killed", "stopped", "aborted")
STALL_S = 3.0
STARTS_WITHIN_S = 60.0
CALLS_BEFORE = 20
EVERY_NCCL = 7
MPS_NOT_READY = "CUDA error 807"
STARTS = 4
"""Most starts of a job while MPS recovers."""
RECOVERS_S = 5.0
DEBUGGERS = ("cuda-gdb", "gdb")
DEPTH = 12
"""Frames of a thread that are told."""
STACKS_WITHIN_S = 60.0


@dataclass(frozen=True)
class Trial:
    """One job and its end."""

    operation: str
    pattern: str
    """Name of the schedule; empty: NCCL's own call."""
    end: str
    size_bytes: int
    slice_bytes: int
    protocol: str
    after_s: float

    def describe(self) -> str:
        """The trial in a few words."""
        schedule = self.pattern or "NCCL's own call"
        return f"{self.operation} of {self.size_bytes >> 10}K, {schedule}, {self.end}"


def trials_of(
    kernels: Mapping[str, Mapping[str, str]],
    count: int,
    seed: int,
    protocols: Sequence[str],
) -> list[Trial]:
    """Trials over all schedules and ends in turn, with random sizes, protocols and times."""
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    schedules = [(operation, name) for operation in sorted(kernels) for name in kernels[operation]]
    draw.shuffle(schedules)
    found = []
    for number in range(count):
        operation, pattern = schedules[number % len(schedules)]
        if number % EVERY_NCCL == EVERY_NCCL - 1:
            pattern = ""
        size_bytes = draw.choice((64 << 10, M, 16 * M, 64 * M))
        found.append(
            Trial(
                operation,
                pattern,
                ENDS[number % len(ENDS)],
                size_bytes,
                max(1 << 14, size_bytes // draw.choice((1, 4, 16))),
                draw.choice(protocols),
                draw.uniform(0, 0.5),
            )
        )
    return found


def run_trial(arguments: argparse.Namespace, folder: Path, trial: Trial) -> dict[str, Any]:
    """Run a job to its end, once MPS takes its ranks; return how they ended.

    Raises:
        JobError: The ranks made no calls.
    """
    for number in range(1, STARTS):
        try:
            return run_once(arguments, folder.with_name(f"{folder.name}-{number}"), trial)
        except JobError as error:
            if MPS_NOT_READY not in str(error):
                raise
            time.sleep(RECOVERS_S)
    return run_once(arguments, folder.with_name(f"{folder.name}-{STARTS}"), trial)


def run_once(arguments: argparse.Namespace, folder: Path, trial: Trial) -> dict[str, Any]:
    """Start the ranks of a job, end it, and return how they ended.

    Raises:
        JobError: The ranks made no calls.
    """
    words = {"part": "ends", "stall_s": STALL_S, **asdict(trial)}
    processes = start_job(arguments, folder, words, processes=arguments.ranks)

    def bring_about() -> list[int]:
        await_calls(folder, processes)
        time.sleep(trial.after_s)
        return end(folder, processes, trial.end)

    return watch_end(folder, processes, bring_about, arguments.limit)


def watch_end(
    folder: Path,
    processes: Sequence[subprocess.Popen[bytes]],
    bring_about: Callable[[], Sequence[int]],
    limit_s: float,
) -> dict[str, Any]:
    """Have a job end; return how those of its ranks ended that must, and kill what is left.

    Args:
        folder: Of the job.
        processes: By rank.
        bring_about: Ends the job; returns the ranks that must end by themselves.
        limit_s: Time that these have.
    """
    try:
        left = bring_about()
        begin = time.monotonic()
        hung = await_ends(processes, left, begin + limit_s)
        seconds = time.monotonic() - begin
        ranks = results(folder, left)
        silent = [rank for rank in left if rank not in ranks]
        stacks = native_stacks([processes[rank] for rank in hung])
        return {
            "seconds": seconds,
            "left": list(left),
            "hung": hung,
            "ranks": ranks,
            "outputs": {rank: end_of_output(folder, rank) for rank in silent},
            "stacks": dict(zip(hung, stacks, strict=True)),
        }
    finally:
        for process in processes:
            process.kill()
            process.wait()


def await_calls(folder: Path, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait until every rank has made some calls.

    Raises:
        JobError: One ended before, or time is up.
    """
    deadline = time.monotonic() + STARTS_WITHIN_S
    while True:
        told = [folder / f"progress{rank}" for rank in range(len(processes))]
        if all(path.exists() and int(path.read_text()) >= CALLS_BEFORE for path in told):
            return
        ended = [rank for rank, process in enumerate(processes) if process.poll() is not None]
        if ended or time.monotonic() > deadline:
            rank = ended[0] if ended else 0
            why = result_of(folder, rank) or "no result"
            raise JobError(f"rank {rank}: {why}; its output ends: {end_of_output(folder, rank)!r}")
        time.sleep(0.02)


def end(folder: Path, processes: Sequence[subprocess.Popen[bytes]], how: str) -> list[int]:
    """Bring about the end; return the ranks that must end by themselves."""
    ranks = list(range(len(processes)))
    if how == "aborted":
        for rank in ranks:
            (folder / f"abort{rank}").touch()
        return ranks
    processes[-1].send_signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    return ranks[:-1]


def await_ends(
    processes: Sequence[subprocess.Popen[bytes]], left: Sequence[int], deadline: float
) -> list[int]:
    """Wait for the ranks that are left; return those that have not ended by the deadline."""
    while time.monotonic() < deadline:
        if all(processes[rank].poll() is not None for rank in left):
            return []
        time.sleep(0.02)
    return [rank for rank in left if processes[rank].poll() is None]


def results(folder: Path, left: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The result of each rank that left one; one that failed did not come back."""
    found = {}
    for rank in left:
        if (result := result_of(folder, rank)) is not None:
            failed = {"why": result["error"], "came_back": False} if "error" in result else {}
            found[rank] = result | failed
    return found


def native_stacks(processes: Sequence[subprocess.Popen[bytes]]) -> list[str]:
    """Stacks of all threads of ranks that hang, by the first debugger that is here."""
    debugger = next(filter(None, map(shutil.which, DEBUGGERS)), None)
    if debugger is None:
        return [f"none of {', '.join(DEBUGGERS)} is here to tell"] * len(processes)
    found = []
    for process in processes:
        command = [debugger, "-p", str(process.pid), "-batch"]
        command += ["-ex", f"thread apply all bt {DEPTH}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=STACKS_WITHIN_S, check=False
            )
            found.append("\n".join(filter(is_of_stack, done.stdout.splitlines())))
        except subprocess.TimeoutExpired:
            found.append(f"{debugger} took longer than {STACKS_WITHIN_S:.0f} s")
    return found


def is_of_stack(line: str) -> bool:
    """Whether a debugger's line is a thread or a frame."""
    return line.startswith(("Thread ", "#"))


def shared_files() -> set[str]:
    """Files of all processes in shared memory."""
    return {path.name for path in Path("/dev/shm").iterdir()}  # noqa: S108 - the place of NCCL's


def used_mib() -> int | None:
    """Memory in use on all GPUs, as the driver says; None without its tool."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return sum(map(int, done.stdout.split()))


def is_right(found: Mapping[str, Any]) -> bool:
    """Whether every rank that was left has ended, and its calls came back."""
    ranks: Mapping[int, Mapping[str, Any]] = found["ranks"]
    whole = list(ranks) == found["left"] and not found["hung"]
    return whole and all(result["came_back"] for result in ranks.values())


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    add_arguments(parser, nodes="2", limit_s=30)
    parser.add_argument("--trials", type=int, default=14)
    # Of the jobs of check_executor.py, whose schedules these are.
    parser.set_defaults(
        operations=("all_reduce",),
        types=("float16",),
        reductions=("sum",),
        programs=None,
        largest="4M",
    )
    return parser.parse_args()


def check(arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Run all trials."""
    find_machine(arguments, 1)
    (folder / "schedules").mkdir()
    kernels = write_schedules(arguments, folder / "schedules")[str(arguments.ranks)]
    done = []
    # LL128 is not for ranks that share a GPU: the executor would leave the call to NCCL.
    protocols = ("LL",) if arguments.sharing else ("LL", "LL128")
    count = arguments.first + arguments.trials
    trials = trials_of(kernels, count, arguments.seed, protocols)
    for number, trial in enumerate(trials[arguments.first :], arguments.first):
        found = run_trial(arguments, folder / str(number), trial)
        right = is_right(found)
        said = sorted({result["why"] for result in found["ranks"].values()})
        taken = sum(result.get("by_executor", 0) for result in found["ranks"].values())
        print(
            f"{'ended' if right else 'NOT ENDED'} in {found['seconds']:.1f} s: "
            f"{trial.describe()}; {taken} calls by the executor; {', '.join(said)}"
            f"{'; hung: ' + str(found['hung']) if found['hung'] else ''}",
            flush=True,
        )
        for rank, text in found["outputs"].items():
            print(f"  rank {rank} left no result; its output ends: {text!r}", flush=True)
        for rank, text in found["stacks"].items():
            print(f"  rank {rank} hangs, thread by thread:\n{text}", flush=True)
        done.append({"trial": asdict(trial), "right": right, "by_executor": taken > 0, **found})
    return done


def main() -> int:
    """Run all trials and compare what they leave; return the exit code."""
    arguments = parse_arguments()
    files, memory = shared_files(), used_mib()
    try:
        with tempfile.TemporaryDirectory(prefix="tuccl-ends-") as folder:
            done = check(arguments, Path(folder))
    except (JobError, TucclError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(done, indent=1), encoding="utf-8")
    time.sleep(1)
    left = sorted(shared_files() - files)
    print(f"GPU memory: {memory} MiB before, {used_mib()} MiB after; left in /dev/shm: {left}")
    own = [name for name in left if "tuccl" in name]
    wrong = sum(not each["right"] for each in done)
    of_schedules = [each for each in done if each["trial"]["pattern"]]
    ran = sum(each["by_executor"] for each in of_schedules)
    print(
        f"{len(done)} trials, {wrong} with ranks that did not end; "
        f"{ran} of {len(of_schedules)} schedules were run by the executor"
    )
    return 1 if wrong or own else 0


if __name__ == "__main__":
    sys.exit(main())
