"""Sizes as nccl-tests writes them: `64K`, `1M`, `1G` are powers of 1024."""

from __future__ import annotations

import re

from tuccl.errors import UsageError

_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"^\s*(\d{1,20})\s*([KMGT]?)(?:I?B)?\s*$", re.IGNORECASE)
MAX_SIZE_BYTES = 1 << 46


def parse_size(text: str) -> int:
    """Bytes of a size such as `64K`, `1M` or `8192`.

    Raises:
        UsageError: when the text is not a size or lies outside 1 byte to 64 TiB.
    """
    match = _SIZE.match(text)
    if match is None:
        raise UsageError(f"size {text!r} is not understood: write bytes or 64K, 1M, 1G")
    size_bytes = int(match.group(1)) * _UNITS[match.group(2).upper()]
    if not 1 <= size_bytes <= MAX_SIZE_BYTES:
        raise UsageError(f"size {text!r} is out of range: use 1 byte to {MAX_SIZE_BYTES >> 40}T")
    return size_bytes


def format_size(size_bytes: int) -> str:
    """The shortest exact form: `64K`, `1M`, `1000`."""
    for unit in ("T", "G", "M", "K"):
        if size_bytes >= _UNITS[unit] and size_bytes % _UNITS[unit] == 0:
            return f"{size_bytes // _UNITS[unit]}{unit}"
    return str(size_bytes)


def size_ladder(min_bytes: int, max_bytes: int, factor: int) -> tuple[int, ...]:
    """Sizes from `min_bytes` to at most `max_bytes`, each `factor` times the one before.

    Raises:
        UsageError: for an empty range or a factor below 2.
    """
    if factor < 2:
        raise UsageError(f"--step {factor} does not grow: use 2 or more")
    if min_bytes > max_bytes:
        raise UsageError(
            f"--min-size {format_size(min_bytes)} lies above --max-size {format_size(max_bytes)}"
        )
    sizes = [min_bytes]
    while sizes[-1] * factor <= max_bytes:
        sizes.append(sizes[-1] * factor)
    return tuple(sizes)
