"""What a measurement between two ports found: `PairResult`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, order=True)
class PortPair:
    """Two ports by their places in the list of ports; `client` sends to `server`."""

    client: int
    server: int


class Failure(StrEnum):
    """Why a figure is missing."""

    UNREACHABLE = "unreachable"
    """Nothing came back: the host or the way to it is down."""
    FILTERED = "filtered"
    """The probe is answered by a refusal, or is dropped though other traffic passes."""
    TIMEOUT = "timeout"
    """The tool did not end within its time."""
    TOOL_MISSING = "tool missing"
    UNREADABLE = "unreadable"
    """The tool's output is cut or of a form that is not known."""
    HOST_LOST = "host lost"
    """Whoever was to measure is gone, which tells nothing about the way between the ports."""


@dataclass(frozen=True, slots=True)
class PairResult:
    """One measurement of one pair. A figure is None exactly when its failure says why."""

    pair: PortPair
    bandwidth_gb_per_s: float | None = None
    """From client to server."""
    latency_us: float | None = None
    """One way: half of a round trip."""
    bandwidth_by: str = ""
    """The tool: `ib_write_bw`, `iperf3`."""
    latency_by: str = ""
    """The tool: `ib_write_lat`, `ping`."""
    bandwidth_failure: Failure | None = None
    latency_failure: Failure | None = None
    detail: str = ""
    """The tool's own words about a failure, one line."""
