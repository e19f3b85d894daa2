"""What the programs of a job's ranks share: their start, their result, and bytes of rank 0.

A rank is started as `PROGRAM JOB.json RANK`; measuring_job.py starts it and collects the results.
Ranks of PyTorch use this too, so it imports nothing of TuCCL.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAIT_S = 60.0


def run_rank(
    work: Callable[[dict[str, Any], int], dict[str, Any]], *errors: type[Exception]
) -> dict[str, Any]:
    """Run this rank of the job and leave its result in the job's folder.

    Args:
        work: Called with the job and the rank.
        errors: Become the result; others end the program with a traceback in its output.
    """
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rank = int(sys.argv[2])
    try:
        result = work(job, rank)
    except errors as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    path = Path(job["folder"]) / f"result{rank}.json"
    path.write_text(json.dumps(result), encoding="utf-8")
    return result


def from_rank_zero(path: Path, own: bytes | None) -> bytes:
    """Return the bytes of rank 0, such as an ncclUniqueId, on every rank.

    Args:
        path: A file that does not exist yet.
        own: The bytes on rank 0; None on the other ranks.

    Raises:
        TimeoutError: Rank 0 did not write it.
    """
    if own is not None:
        part = path.with_suffix(".part")
        part.write_bytes(own)
        part.replace(path)
    deadline = time.monotonic() + WAIT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank 0 did not write {path} within {WAIT_S:.0f} s")
        time.sleep(0.005)
    return path.read_bytes()
