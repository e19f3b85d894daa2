"""Read NCCL's choices from its log, and the number of channels that it gives a call.

`tuning_lines` reads the lines that NCCL writes with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING,
`attained_channels` is NCCL's rule for spreading a call over channels (NCCL 2.28 src/enqueue.cc,
scheduleCollTasksToPlan): a tuner's channel count is an upper bound, small calls get fewer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MIN_TRAFFIC_BYTES = (16 << 10, 32 << 10)
"""Least traffic of a channel, in releases before and after it was doubled."""

_LINE = re.compile(
    r"(?P<operation>[A-Za-z]+):\s*(?P<bytes>\d+)\s*Bytes\s*->\s*Algo\s+(?P<algorithm>\w+)"
    r"\s+proto\s+(?P<protocol>\w+)"
    r"(?:.*?channel\s*\{\s*Lo\s*\.\.\s*Hi\s*\}\s*=\s*\{\s*(?P<low>\d+)\s*\.\.\s*(?P<high>\d+)\s*\})?",
    re.IGNORECASE,
)
_OPERATIONS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
_ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
_PROTOCOLS = ("LL", "LL128", "Simple")


@dataclass(frozen=True)
class Choice:
    """Algorithm, protocol and channel count of one call."""

    algorithm: str
    """Algorithm in lower case without underscores: ring, tree, nvlstree, ..."""
    protocol: str
    """Protocol in lower case."""
    channels: int | None
    """Channels; None if the line has no count."""

    def __str__(self) -> str:
        return f"{self.algorithm}/{self.protocol}/{self.channels}"


@dataclass(frozen=True)
class TuningLine:
    """One call as NCCL logged it; rank 0 of a communicator logs each call once."""

    operation: str
    logged_bytes: int
    """Size of the buffer for all_reduce, of one rank's part for all_gather and reduce_scatter."""
    choice: Choice


def _name(text: str, names: tuple[str, ...]) -> str:
    """Name for the index that NCCL 2.19 and older log."""
    if text.isdigit() and int(text) < len(names):
        text = names[int(text)]
    return text.lower().replace("_", "")


def tuning_lines(log: str) -> list[TuningLine]:
    """All calls in a log, in its order; operations that no tuner is asked for are left out."""
    found = []
    for match in _LINE.finditer(log):
        operation = _OPERATIONS.get(match["operation"].lower())
        if operation is None:
            continue
        channels = None
        if match["low"] is not None:
            channels = int(match["high"]) - int(match["low"]) + 1
        choice = Choice(
            _name(match["algorithm"], _ALGORITHMS), _name(match["protocol"], _PROTOCOLS), channels
        )
        found.append(TuningLine(operation, int(match["bytes"]), choice))
    return found


def tuccl_warnings(log: str) -> list[str]:
    """The plugin's warnings in a log."""
    return [line for line in log.splitlines() if "NCCL WARN" in line and "TuCCL" in line]


def _ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def attained_channels(
    operation: str,
    protocol: str,
    size_bytes: int,
    ranks: int,
    wanted: int,
    *,
    min_traffic_bytes: int,
) -> int:
    """Channels that one call gets when the tuner allows `wanted`.

    Args:
        operation: Its name in nccl-tests.
        protocol: LL, LL128 or Simple, in any case.
        size_bytes: As in nccl-tests.
        ranks: Of the communicator.
        wanted: The tuner's count, not above the communicator's channels.
        min_traffic_bytes: One of `MIN_TRAFFIC_BYTES`.
    """
    per_byte = 2 if operation == "all_reduce" else ranks
    task_bytes = size_bytes if operation == "all_reduce" else size_bytes // ranks
    if protocol.lower() == "ll":
        per_byte *= 4
    cell_bytes = _ceil_div(_ceil_div(min_traffic_bytes, per_byte), 16) * 16
    cells = _ceil_div(task_bytes, cell_bytes)
    traffic = max(min_traffic_bytes, task_bytes * per_byte)
    per_channel = max(min_traffic_bytes, traffic // wanted)
    return _ceil_div(cells, min(cells, _ceil_div(per_channel, cell_bytes * per_byte)))
