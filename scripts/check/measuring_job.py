"""The processes of a job, one per rank: their environment, and how they end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

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
    inherited = {
        name: value
        for name, value in environment.items()
        if name not in TAKEN_OUT and not name.startswith("TUCCL_")
    }
    preloaded = inherited.pop(PRELOAD, "").replace(":", " ").split()
    if others := [path for path in preloaded if Path(path).name != EXECUTOR]:
        inherited[PRELOAD] = " ".join(others)
    return inherited


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
