"""Calls of the engines, one process per rank and no leader.

A job is a list of steps (see measuring_rank.py) with its own environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from measuring_job import JobError, results_of, start_ranks, wait_for_all, without_tables

from tests.kept_builds import ROOT, compiler_words, content_sum, kept
from tests.runtime.builds import CC, RUNTIME

RANK = Path(__file__).with_name("measuring_rank.py")


@dataclass(frozen=True)
class JobResult:
    """Result of all ranks."""

    versions: str
    seconds: float
    """Seconds of the whole job, from start to exit."""
    steps: tuple[dict[str, Any], ...]
    """For each step `times_us` of the slowest rank, launch by launch, or `error`."""


def build_libraries(folder: Path) -> Path:
    """Compile plugin and measuring library of this checkout with cc, if they are not kept.

    Returns:
        A folder for PYTHONPATH, where `tuccl.runtime` finds them.

    Raises:
        JobError: They do not compile.
    """
    target = folder / "tuccl" / "runtime"
    target.mkdir(parents=True)
    path = ROOT / "scripts" / "make" / "build_library.sh"
    for library, name, sources in (
        ("plugin", "libnccl-tuner-tuccl.so", RUNTIME),
        ("measure", "libtuccl-measure.so", RUNTIME / "measure"),
    ):
        inputs = [path, *sorted(RUNTIME.glob("*.[ch]")), *sorted(sources.glob("*.[ch]"))]
        build = partial(_compile, path, library, name)
        shutil.copy(kept(content_sum(compiler_words(CC), inputs), build) / name, target)
    return folder


def _compile(script: Path, library: str, name: str, folder: Path) -> None:
    command = ["sh", str(script), library, str(folder / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise JobError(f"{name} does not compile: {done.stderr.strip()}")


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
    job = {"ranks": ranks, "steps": list(steps), "controlled": controlled}
    inherited = without_tables(os.environ)
    inherited["PYTHONPATH"] = os.pathsep.join(
        map(str, (ROOT, libraries, ROOT / "scripts" / "check"))
    )
    environments = [inherited | dict(variables) for _ in range(ranks)]
    begin = time.monotonic()
    results = results_of(
        folder, wait_for_all(start_ranks(RANK, folder, job, environments), begin + limit_s)
    )
    seconds = time.monotonic() - begin
    steps_of = zip(*(result["results"] for result in results), strict=True)
    return JobResult(results[0]["versions"], seconds, tuple(map(_slowest, steps_of)))


def _slowest(ranks: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    errors = [f"rank {i}: {result['error']}" for i, result in enumerate(ranks) if "error" in result]
    if errors:
        return {"error": errors[0], "ranks_that_failed": len(errors)}
    launches = zip(*(result["times_us"] for result in ranks), strict=True)
    findings = [f"rank {i}: {r['finding']}" for i, r in enumerate(ranks) if r.get("finding")]
    return dict(ranks[0]) | {"times_us": [max(times) for times in launches], "findings": findings}
