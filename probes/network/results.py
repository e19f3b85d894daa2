"""The result of a measurement between two ports: `PairResult`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, order=True)
class PortPair:
    """Two ports by their indices in the list of ports; `client` sends to `server`."""

    client: int
    server: int


class Failure(StrEnum):
    """Cause of a missing figure."""

    UNREACHABLE = "unreachable"
    """There was no answer: the host or the path to it is down."""
    FILTERED = "filtered"
    """The probe is refused, or dropped though other traffic passes."""
    TIMEOUT = "timeout"
    """The tool did not end in time."""
    TOOL_MISSING = "tool missing"
    UNREADABLE = "unreadable"
    """The tool's output is cut or of an unknown form."""
    HOST_LOST = "host lost"
    """The measuring host is gone, which says nothing about the path between the ports."""


@dataclass(frozen=True, slots=True)
class PairResult:
    """Result of one measurement of a pair; a figure is None exactly when its failure is set."""

    pair: PortPair
    bandwidth_gb_per_s: float | None = None
    """Bandwidth from client to server."""
    latency_us: float | None = None
    """One-way latency: half of a round trip."""
    bandwidth_by: str = ""
    """The bandwidth's tool: `ib_write_bw`, `iperf3`."""
    latency_by: str = ""
    """The latency's tool: `ib_write_lat`, `ping`."""
    bandwidth_failure: Failure | None = None
    latency_failure: Failure | None = None
    detail: str = ""
    """The tool's message about a failure, one line."""
