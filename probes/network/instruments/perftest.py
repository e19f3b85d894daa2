"""RDMA bandwidth and latency by perftest (`ib_write_bw`, `ib_write_lat`): command lines, figures.

The parser reads their text (perftest 4 to 6):

     #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
     65536      5000             92.42              92.40              0.176230
    ---------------------------------------------------------------------------------------

The bandwidth is BW average of the largest message, the latency t_typical (the median, one way) of
the smallest. perftest's MB is 2^20 bytes, its Gb 10^9 bits. Average = message rate x size: a row
that contradicts this has no figure. Warnings between the rows are skipped; a row needs all its
columns, and the table must end with a rule.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from probes.network.instruments.tools import failure_in_words, last_words, one_line
from probes.network.ports import Failure

GB_PER_S_OF_UNIT = {
    "MB/sec": 2**20 / 1e9,
    "MiB/sec": 2**20 / 1e9,
    "Gb/sec": 1 / 8,
}
MAX_DIFFERENCE = 0.02
"""Largest relative difference between average and rate times size in a valid row."""

_BIDIRECTIONAL = "both directions together: measure without -b"
_HEADER = re.compile(r"^\s*#bytes\s+#iterations\s")
_COLUMN = re.compile(r"#\w+|[\w.%]+(?: (?:peak|average|percentile))?(?:\[[^\]\n]*\])?")
_RULE = re.compile(r"^\s*-+\s*$")


@dataclass(frozen=True, slots=True)
class PerftestRow:
    """Row of one message size, with the bandwidth or the latency."""

    size_bytes: int
    bandwidth_gb_per_s: float | None = None
    latency_us: float | None = None

    @property
    def figure(self) -> float | None:
        """The bandwidth or latency; None when the row has no valid figure."""
        return self.latency_us if self.bandwidth_gb_per_s is None else self.bandwidth_gb_per_s


@dataclass(frozen=True, slots=True)
class PerftestResult:
    """Result of one run; without a failure either the bandwidth or the latency is set."""

    rows: tuple[PerftestRow, ...]
    failure: Failure | None
    detail: str
    bandwidth_gb_per_s: float | None = None
    latency_us: float | None = None


@dataclass(frozen=True, slots=True)
class RdmaEnd:
    """One end of a measurement between RDMA devices."""

    device: str
    port: int
    gid_index: int | None = None
    """RoCE: index of the GID of the address; None leaves the choice to perftest."""
    over_ipv6: bool = False
    """Whether the ends connect over IPv6, which needs an option of perftest since 2023."""


def bandwidth_command(end: RdmaEnd, tcp_port: int, seconds: int, server: str = "") -> list[str]:
    """Return the command of `ib_write_bw` with messages of 1 MiB; without `server` it listens."""
    test = ["-s", str(2**20), "-D", str(seconds), "--report_gbits"]
    return ["ib_write_bw", *_end_options(end, tcp_port), *test, *_server_argument(server)]


def latency_command(end: RdmaEnd, tcp_port: int, iterations: int, server: str = "") -> list[str]:
    """Return the command of `ib_write_lat` with messages of 8 B; without `server` it listens."""
    test = ["-s", "8", "-n", str(iterations)]
    return ["ib_write_lat", *_end_options(end, tcp_port), *test, *_server_argument(server)]


def _end_options(end: RdmaEnd, tcp_port: int) -> list[str]:
    gid = [] if end.gid_index is None else ["-x", str(end.gid_index)]
    family = ["--ipv6-addr"] if end.over_ipv6 else []
    return ["-d", end.device, "-i", str(end.port), *gid, "-p", str(tcp_port), "-F", *family]


def _server_argument(server: str) -> list[str]:
    return [server] if server else []


def parse_perftest(text: str) -> PerftestResult:
    """Parse the output of a run (both streams)."""
    columns: tuple[str, ...] = ()
    rows: list[PerftestRow] = []
    closed = False
    for line in text.splitlines():
        if _HEADER.match(line):
            columns = tuple(_COLUMN.findall(line))
        elif columns and _RULE.match(line):
            closed = bool(rows)
        elif columns and (row := _row(columns, line.split())):
            rows.append(row)
            closed = False
    if "Bidirectional" in text and rows:
        return PerftestResult(tuple(rows), Failure.UNREADABLE, _BIDIRECTIONAL)
    return _result(tuple(rows), closed, text)


def _result(rows: tuple[PerftestRow, ...], closed: bool, text: str) -> PerftestResult:
    if not rows:
        stated = failure_in_words(text) or (Failure.UNREADABLE, f"no rows: {last_words(text)}")
        return PerftestResult(rows, *stated)
    if not closed:
        problem = f"cut after the row of {rows[-1].size_bytes} bytes: {last_words(text)}"
        return PerftestResult(rows, Failure.UNREADABLE, one_line(problem))
    is_latency = any(row.latency_us is not None for row in rows)
    sizes = sorted({row.size_bytes for row in rows})
    size = sizes[0] if is_latency else sizes[-1]
    figures = [row.figure for row in rows if row.size_bytes == size]
    if None in figures:
        return PerftestResult(rows, Failure.UNREADABLE, f"no figure in the row of {size} bytes")
    if any(not math.isclose(a or 0, b or 0, rel_tol=MAX_DIFFERENCE) for a, b in pairwise(figures)):
        problem = f"several rows of {size} bytes that differ"
        return PerftestResult(rows, Failure.UNREADABLE, problem)
    if is_latency:
        return PerftestResult(rows, None, "", latency_us=figures[0])
    return PerftestResult(rows, None, "", bandwidth_gb_per_s=figures[0])


def _row(columns: Sequence[str], words: Sequence[str]) -> PerftestRow | None:
    """Parse a row of the table; None for any other line."""
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        return None
    if len(numbers) != len(columns) or not 0 < numbers[0] < 2**40:
        return None
    cells, size = dict(zip(columns, numbers, strict=True)), int(numbers[0])
    typical = cells.get("t_typical[usec]", cells.get("t_avg[usec]"))
    if typical is not None:
        return PerftestRow(size, latency_us=typical if _is_positive(typical) else None)
    rate = cells.get("MsgRate[Mpps]")
    for name, value in cells.items():
        if name.startswith("BW average"):
            unit = name.removeprefix("BW average").strip("[]")
            return PerftestRow(size, bandwidth_gb_per_s=_gb_per_s(value, unit, size, rate))
    return PerftestRow(size)


def _gb_per_s(average: float, unit: str, size: int, rate: float | None) -> float | None:
    """Convert the average to GB/s; None when it is not positive or contradicts the message rate."""
    factor = GB_PER_S_OF_UNIT.get(unit)
    if rate is None or factor is None or not _is_positive(average):
        return None
    rate_gb_per_s = rate * size / 1e3
    # Both are printed rounded: the rate to 6 decimals, the average to 2.
    rounding = 0.5e-6 * size / 1e3 + 0.005 * factor
    contradicts = abs(average * factor - rate_gb_per_s) > MAX_DIFFERENCE * rate_gb_per_s + rounding
    return None if contradicts else average * factor


def _is_positive(value: float) -> bool:
    return math.isfinite(value) and value > 0
