"""The processes of a job, one per rank: their environment, start, end and results."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tuccl.measuring.engines.nccl_variables import OVERRULING, PER_PROCESS, PLUGIN_VARIABLE  # noqa: E402

LAST_WORDS_S = 1.0
"""Seconds that the other ranks may continue after a rank has failed."""
TAKEN_OUT = frozenset({*OVERRULING, *PER_PROCESS, PLUGIN_VARIABLE})
"""Variables that a `tuccl.env` or the user may have set and that stock NCCL must run without."""
PRELOAD = "LD_PRELOAD"
EXECUTOR = "libtuccl-executor.so"


class JobError(Exception):
    """The processes of a job could not be started, died, hung or could not join."""


def without_tables(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without the variables of a table, its profile and the executor."""
    profile = environment.get("TUCCL_PROFILE", "").split()
    inherited = {
        name: value
        for name, value in environment.items()
        if name not in TAKEN_OUT.union(profile) and not name.startswith("TUCCL_")
    }
    preloaded = inherited.pop(PRELOAD, "").replace(":", " ").split()
    if others := [path for path in preloaded if Path(path).name != EXECUTOR]:
        inherited[PRELOAD] = " ".join(others)
    return inherited


def start_ranks(
    program: Path,
    folder: Path,
    job: Mapping[str, Any],
    environments: Sequence[Mapping[str, str]],
) -> list[subprocess.Popen[bytes]]:
    """Start a rank's program (rank_program.py) in each environment.

    Args:
        program: The ranks' program.
        folder: For the outputs and results of the ranks, and what they are told.
        job: What they are told, besides their folder.
        environments: By rank; one for all ranks where a process has them all.

    Raises:
        JobError: One cannot be started; those before it are killed.
    """
    told = folder / "job.json"
    told.write_text(json.dumps({"folder": str(folder), **job}), encoding="utf-8")
    command = [sys.executable, str(program), str(told)]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank, environment in enumerate(environments):
            with (folder / f"out{rank}").open("wb") as out:
                processes.append(
                    subprocess.Popen(
                        [*command, str(rank)],
                        env=environment,
                        stdout=out,
                        stderr=subprocess.STDOUT,
                    )
                )
    except OSError as error:
        for process in processes:
            process.kill()
            process.wait()
        raise JobError(f"rank {len(processes)} cannot be started: {error}") from error
    return processes


def wait_for_all(processes: list[subprocess.Popen[bytes]], deadline: float) -> list[str]:
    """Wait until all ranks have ended; kill the rest when one fails or time is up.

    Returns:
        How each ended: `died of SIGSEGV`, `ended with code 1`, `hung` if it had to be killed.
    """
    hung = set()
    try:
        while None in (codes := [process.poll() for process in processes]):
            if any(codes):
                # Other ranks may wait for it forever, or be about to report why.
                deadline = min(deadline, time.monotonic() + LAST_WORDS_S)
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
    finally:
        for process in processes:
            if process.poll() is None:
                hung.add(process)
                process.kill()
            process.wait()
    return ["hung" if process in hung else _end(process.returncode) for process in processes]


def _end(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"died of {signal.Signals(-code).name}"
    except ValueError:
        return f"died of signal {-code}"


def result_of(folder: Path, rank: int) -> dict[str, Any] | None:
    """The result that a rank left; None without one."""
    path = folder / f"result{rank}.json"
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def end_of_output(folder: Path, rank: int) -> str:
    """The end of a rank's output, where Python says how it crashed."""
    return (folder / f"out{rank}").read_text(encoding="utf-8", errors="replace")[-1500:]


def results_of(folder: Path, ends: Sequence[str]) -> list[dict[str, Any]]:
    """Results of all ranks; a failure that a rank found outweighs how other ranks ended.

    Raises:
        JobError: A rank has no result, and no rank found a failure; has the end of its output.
    """
    results, missing = [], []
    for rank, end in enumerate(ends):
        result = result_of(folder, rank)
        if result is None or "error" in result:
            progress = folder / f"progress{rank}"
            last = f" after {progress.read_text('utf-8')}" if progress.exists() else ""
            why = f"{end}{last}" if result is None else result["error"]
            missing.append(f"rank {rank}: {why}; its output ends: {end_of_output(folder, rank)!r}")
        else:
            results.append(result)
    if missing and not any(result.get("failures") for result in results):
        raise JobError("\n".join(missing))
    return results
