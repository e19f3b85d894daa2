"""Which GPUs CUDA gives a process, and in which order: CUDA_VISIBLE_DEVICES.

Entries are numbers or beginnings of UUIDs, of one kind. The first entry that names no GPU ends the
list, and an entry given twice empties it, as the CUDA programming guide and PyTorch's own count of
devices (2.6 torch/cuda/__init__.py) have it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible_gpus(value: str | None, uuids: Sequence[str]) -> tuple[int, ...]:
    """Places of the visible GPUs, in CUDA's order.

    Args:
        value: of CUDA_VISIBLE_DEVICES; None when it is not set, which shows all.
        uuids: of all GPUs in CUDA's own order; empty for one whose UUID is not known.
    """
    if value is None:
        return tuple(range(len(uuids)))
    entries = [entry.strip() for entry in value.split(",")]
    by_uuid = entries[0].startswith("GPU-")
    places: list[int] = []
    for entry in entries:
        place = _by_uuid(entry, uuids) if by_uuid else _by_number(entry, len(uuids))
        if place is None:
            break
        if place in places:
            return ()
        places.append(place)
    return tuple(places)


def _by_number(entry: str, count: int) -> int | None:
    """As C's strtoul reads it: what follows the digits does not count."""
    number = re.match(r"\+?(\d{1,9})", entry, re.ASCII)
    return int(number[1]) if number and int(number[1]) < count else None


def _by_uuid(entry: str, uuids: Sequence[str]) -> int | None:
    """The one GPU whose UUID begins so."""
    found = [place for place, uuid in enumerate(uuids) if uuid.startswith(entry)]
    return found[0] if entry.startswith("GPU-") and len(found) == 1 else None
