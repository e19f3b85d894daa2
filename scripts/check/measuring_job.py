"""Run calls on the GPUs of this host, one process per rank, and collect the times.

Scripts use it to check `tuccl`'s measurements without a leader. A job is a list of steps (see
measuring_rank.py) with its own environment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tuccl.engines.nccl_variables import OVERRULING, PER_PROCESS, PLUGIN_VARIABLE  # noqa: E402

LAST_WORDS_S = 1.0
"""Seconds that the other ranks may continue after a rank has failed."""
TAKEN_OUT = frozenset({*OVERRULING, *PER_PROCESS, PLUGIN_VARIABLE})
"""Variables that a `tuccl.env` or the user may have set and that stock NCCL must run without."""
PRELOAD = "LD_PRELOAD"
EXECUTOR = "libtuccl-executor.so"


class JobError(Exception):
    """The processes of a job could not be started, died, hung or could not join."""


@dataclass(frozen=True)
class JobResult:
    """Result of all ranks."""

    versions: str
    seconds: float
    """Seconds of the whole job, from start to exit."""
    steps: tuple[dict[str, Any], ...]
    """For each step `times_us` of the slowest rank, launch by launch, or `error`."""


def build_libraries(folder: Path) -> Path:
    """Compile plugin and measuring library of this checkout with cc.

    Returns:
        A folder for PYTHONPATH, where `tuccl.runtime` finds them.

    Raises:
        JobError: They do not compile.
    """
    target = folder / "tuccl" / "runtime"
    target.mkdir(parents=True)
    for script, name in (
        ("build_plugin.sh", "libnccl-tuner-tuccl.so"),
        ("build_measure.sh", "libtuccl-measure.so"),
    ):
        command = ["sh", str(ROOT / "scripts" / "make" / script), str(target / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise JobError(f"{name} does not compile: {done.stderr.strip()}")
    return folder


def run_job(
    folder: Path,
    ranks: int,
    steps: Sequence[dict[str, Any]],
    variables: Mapping[str, str],
    *,
    libraries: Path,
    controlled: bool,
    limit_s: float = 120,
) -> JobResult:
    """Start one process per rank and wait for all of them.

    Raises:
        JobError: A process cannot be started; a rank died, hung or could not join; says which and
            how its output ends.
    """
    folder.mkdir(parents=True)
    job = {
        "ranks": ranks,
        "folder": str(folder),
        "steps": list(steps),
        "controlled": controlled,
    }
    job_file = folder / "job.json"
    job_file.write_text(json.dumps(job), encoding="utf-8")
    inherited = without_tables(os.environ)
    inherited["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(libraries)])
    environments = [inherited | dict(variables) for _ in range(ranks)]
    begin = time.monotonic()
    processes = start_all(folder, job_file, environments)
    ends = wait_for_all(processes, begin + limit_s)
    return _collect(folder, ends, time.monotonic() - begin)


def without_tables(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without the variables of a table, its profile and the executor."""
    inherited = {
        name: value
        for name, value in environment.items()
        if name not in TAKEN_OUT and not name.startswith("TUCCL_")
    }
    preloaded = inherited.pop(PRELOAD, "").replace(":", " ").split()
    if others := [path for path in preloaded if Path(path).name != EXECUTOR]:
        inherited[PRELOAD] = " ".join(others)
    return inherited


def start_all(
    folder: Path, job_file: Path, environments: Sequence[Mapping[str, str]]
) -> list[subprocess.Popen[bytes]]:
    """Start one process per rank.

    Raises:
        JobError: One cannot be started; those before it are killed.
    """
    command = [sys.executable, str(ROOT / "scripts" / "check" / "measuring_rank.py"), str(job_file)]
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


def _collect(folder: Path, ends: Sequence[str], seconds: float) -> JobResult:
    results, errors = [], []
    for rank, end in enumerate(ends):
        path = folder / f"result{rank}.json"
        result = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        if result is None or "error" in result:
            output = (folder / f"out{rank}").read_text(encoding="utf-8", errors="replace")
            why = end if result is None else result["error"]
            errors.append(f"rank {rank}: {why}; its output ends: {output[-800:]!r}")
        else:
            results.append(result)
    if errors:
        raise JobError("\n".join(errors))
    steps = tuple(
        _slowest(together)
        for together in zip(*(result["results"] for result in results), strict=True)
    )
    return JobResult(results[0]["versions"], seconds, steps)


def _slowest(ranks: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    errors = [f"rank {i}: {result['error']}" for i, result in enumerate(ranks) if "error" in result]
    if errors:
        return {"error": errors[0], "ranks_that_failed": len(errors)}
    launches = zip(*(result["times_us"] for result in ranks), strict=True)
    findings = [f"rank {i}: {r['finding']}" for i, r in enumerate(ranks) if r.get("finding")]
    return dict(ranks[0]) | {"times_us": [max(times) for times in launches], "findings": findings}
