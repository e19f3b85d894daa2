"""ICMP echo by the system's ping: its command line, and the latency in its output.

The parser reads iputils (all versions) and busybox:

    64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=0.113 ms        (busybox: seq=0)
    2 packets transmitted, 2 received, 0% packet loss, time 999ms  (busybox: 2 packets received)
    rtt min/avg/max/mdev = 0.093/0.103/0.113/0.010 ms              (busybox: round-trip min/avg/max)

The latency is half the median round trip, because one late reply (address resolution, a busy
scheduler) moves a mean. If replies are missing in the output, it is half of ping's own average.
"""

from __future__ import annotations

import re
from statistics import median

from probes.network.instruments.tools import Figure, Tool, failure_in_words, last_words
from probes.network.ports import Failure

MIN_REPLIES = 3
"""Replies needed for a median when the summary is cut off."""

_REPLY = re.compile(
    r"bytes from .{1,300}?\b(?:icmp_[rs]eq|seq)=(\d{1,9})\b"
    r".{0,100}?\btime=(\d{1,9}(?:\.\d{1,9})?) ms\b(.*)"
)
_COUNTS = re.compile(r"\b(\d{1,9}) packets transmitted, (\d{1,9}) (?:packets )?received")
_AVERAGE = re.compile(r"(?:rtt|round-trip) min/avg/max(?:/\w+)? = [\d.]+/(\d+(?:\.\d+)?)/")


def ping_command(
    source: str, target: str, count: int, interval_s: float, deadline_s: int
) -> list[str]:
    """Return the command of iputils; below 2 ms (before 2021: 0.2 s) the interval needs root."""
    timing = ["-c", str(count), "-i", f"{interval_s:g}", "-W", "1", "-w", str(deadline_s)]
    return ["ping", "-n", *timing, "-I", source, target]


def parse_ping(text: str) -> Figure:
    """Parse the output (both streams) of one run; samples are half the round trips, in us.

    Cut replies do not count. If the summary reports more replies than are printed, ping's average
    is the figure; without a summary, at least `MIN_REPLIES` are needed.
    """
    samples = tuple(time_ms * 500 for time_ms in _round_trips_ms(text))
    counts = _COUNTS.search(text)
    sent, received = (int(counts[1]), int(counts[2])) if counts else (None, None)

    def result(latency_us: float | None, failure: Failure | None, detail: str) -> Figure:
        return Figure(latency_us, Tool.PING, failure, detail, samples)

    average = _AVERAGE.search(text)
    all_printed = received is not None and len(samples) >= received
    if samples and (all_printed or (not average and len(samples) >= MIN_REPLIES)):
        return result(median(samples), None, _loss(sent, received))
    if average and float(average[1]) > 0 and received:
        return result(
            float(average[1]) * 500, None, "from ping's average, replies are not all there"
        )
    if samples or received:
        return result(None, Failure.UNREADABLE, f"cut after {len(samples)} replies")
    stated = failure_in_words(text)
    if stated:
        return result(None, *stated)
    if received == 0:
        return result(None, Failure.UNREACHABLE, f"no reply to {sent} packets, 100% packet loss")
    return result(None, Failure.UNREADABLE, last_words(text))


def _round_trips_ms(text: str) -> tuple[float, ...]:
    """Return the round trip of the first reply to every packet; zeros are not measurements."""
    replies: dict[str, float] = {}
    for number, time_ms, remark in _REPLY.findall(text):
        damaged = "BAD CHECKSUM" in remark or "DUP" in remark
        if not damaged and float(time_ms) > 0:
            replies.setdefault(number, float(time_ms))
    return tuple(replies.values())


def _loss(sent: int | None, received: int | None) -> str:
    if sent is None or received is None or received >= sent:
        return ""
    return f"{sent - received} of {sent} packets lost"
