"""What only rank 0 of a job can make, such as an ncclUniqueId, handed to the others in a file."""

from __future__ import annotations

import time
from pathlib import Path

WAIT_S = 60.0


def from_rank_zero(path: Path, own: bytes | None) -> bytes:
    """What rank 0 wrote there, on every rank.

    Args:
        path: A file that is not there before.
        own: What rank 0 gives; None on the others.

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
