"""TCP bandwidth by iperf 3: its command lines, and the figure in its JSON (`iperf3 -J`).

The figure is `end.sum_received`: the bytes received by all streams, without the first seconds in
which TCP finds its speed (`-O`). It is payload; on the wire it is some 5 % more with frames of
1,500 bytes.
"""

from __future__ import annotations

import json
import math

from pydantic import BaseModel, Field, ValidationError

from probes.network.instruments.tools import Figure, Tool, failure_in_words, last_words, one_line
from probes.network.ports import Failure

MAX_STREAMS = 16


class _Rate(BaseModel):
    bits_per_second: float = Field(gt=0, allow_inf_nan=False)


class _End(BaseModel):
    sum_received: _Rate


class _Report(BaseModel):
    end: _End


def streams_for(line_rate_gb_per_s: float) -> int:
    """Return the number of TCP streams: about one per 25 Gb/s, the rate of a core, at least 4.

    4 also if the rate is unknown: streams share a slow link without harm. Before iperf 3.16 all
    streams share one core, which then limits the figure of a fast link.
    """
    return min(MAX_STREAMS, max(4, math.ceil(line_rate_gb_per_s * 8 / 25)))


def iperf3_server_command(address: str, tcp_port: int) -> list[str]:
    """Return the command of a server for one client."""
    return ["iperf3", "-s", "-1", "-B", address, "-p", str(tcp_port)]


def iperf3_client_command(
    source: str, target: str, tcp_port: int, streams: int, seconds: int, omitted_s: int
) -> list[str]:
    """Return the command of a client that sends for `seconds` after `omitted_s` unmeasured ones."""
    ends = ["-c", target, "-p", str(tcp_port), "-B", source, "--connect-timeout", "2000"]
    return [
        *["iperf3", "-J", *ends, "-P", str(streams)],
        *["-t", str(seconds), "-O", str(omitted_s)],
    ]


def parse_iperf3(text: str) -> Figure:
    """Parse a client's output (both streams); the figure is in GB/s."""
    try:
        document, _ = json.JSONDecoder().raw_decode(text, max(text.find("{"), 0))
    except (ValueError, RecursionError):
        stated = failure_in_words(text)
        return Figure(None, Tool.IPERF3, *(stated or (Failure.UNREADABLE, _cut(text))))
    error = document.get("error") if isinstance(document, dict) else None
    if error:
        stated = failure_in_words(str(error))
        failure = stated[0] if stated else Failure.UNREADABLE
        return Figure(None, Tool.IPERF3, failure, one_line(str(error)))
    try:
        report = _Report.model_validate(document)
    except ValidationError as problem:
        where = ".".join(str(step) for step in problem.errors()[0]["loc"])
        return Figure(
            None, Tool.IPERF3, Failure.UNREADABLE, f"no figure in {where or 'the report'}"
        )
    return Figure(report.end.sum_received.bits_per_second / 8e9, Tool.IPERF3)


def _cut(text: str) -> str:
    return "the JSON is cut" if text.lstrip().startswith("{") else last_words(text)
