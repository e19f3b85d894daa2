"""Hand bytes of rank 0, such as an ncclUniqueId, to the other ranks of a job in a file."""

from __future__ import annotations

import time
from pathlib import Path

WAIT_S = 60.0


def from_rank_zero(path: Path, own: bytes | None) -> bytes:
    """Return the bytes of rank 0 on every rank.

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
