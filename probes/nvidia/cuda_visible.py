"""The GPUs that CUDA shows a process, in its order: CUDA_VISIBLE_DEVICES.

Entries are all numbers or all UUID prefixes. The first entry that names no GPU ends the list, and a
repeated entry empties it, as in the CUDA programming guide and PyTorch's count of devices (2.6
torch/cuda/__init__.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible_gpus(value: str | None, uuids: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the visible GPUs, in CUDA's order.

    Args:
        value: value of CUDA_VISIBLE_DEVICES; None when it is not set, which shows all.
        uuids: UUIDs of all GPUs in CUDA's own order, empty where unknown.
    """
    if value is None:
        return tuple(range(len(uuids)))
    entries = [entry.strip() for entry in value.split(",")]
    by_uuid = entries[0].startswith("GPU-")
    indices: list[int] = []
    for entry in entries:
        index = _by_uuid(entry, uuids) if by_uuid else _by_number(entry, len(uuids))
        if index is None:
            break
        if index in indices:
            return ()
        indices.append(index)
    return tuple(indices)


def _by_number(entry: str, count: int) -> int | None:
    """Index of the GPU with this number, which may have text behind, as for C's strtoul."""
    number = re.match(r"\+?(\d{1,9})", entry, re.ASCII)
    return int(number[1]) if number and int(number[1]) < count else None


def _by_uuid(entry: str, uuids: Sequence[str]) -> int | None:
    """Index of the only GPU whose UUID has this prefix; None for none or several."""
    found = [index for index, uuid in enumerate(uuids) if uuid.startswith(entry)]
    return found[0] if entry.startswith("GPU-") and len(found) == 1 else None
