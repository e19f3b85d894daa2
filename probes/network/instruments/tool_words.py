"""Messages of failed network tools, as a `Failure` and one line of the message."""

from __future__ import annotations

import re

from probes.network.results import Failure

MAX_WORDS = 200

# Phrases of iputils and busybox ping, iperf 3 and perftest, and of strerror() in them.
_TOOL_UNUSABLE = r"socket: operation not permitted|are you root|lacking privilege"
_FILTERED = (
    r"packet filtered|prohibited|operation not permitted|port unreachable|connection refused"
    r"|server is busy|access denied"
)
_UNREACHABLE = (
    r"no route to host|unreachable|unknown host|name or service not known|host is down"
    r"|network is down|cannot assign requested address|couldn't connect|no ib devices"
    r"|unable to find the infiniband|device \S+ not found|state is (not active|down)"
    r"|couldn't get (the )?lid"
    # perftest: IBV_WC_RETRY_EXC_ERR, and a queue pair without a path: RDMA does not pass.
    r"|failed status 12\b|failed to modify qp"
)
_TIMED_OUT = r"timed out|timeout"
_OTHER_VERSION = r"unrecognized option|invalid option"

_MEANINGS = tuple(
    (failure, re.compile(pattern, re.IGNORECASE))
    for failure, pattern in (
        (Failure.TOOL_MISSING, _TOOL_UNUSABLE),
        (Failure.FILTERED, _FILTERED),
        (Failure.UNREACHABLE, _UNREACHABLE),
        # Before _TIMED_OUT: the usage that follows mentions timeouts.
        (Failure.UNREADABLE, _OTHER_VERSION),
        (Failure.TIMEOUT, _TIMED_OUT),
    )
)
"""Failures by pattern; the first match decides."""


def failure_in_words(text: str) -> tuple[Failure, str] | None:
    """Find the failure that a tool states in its output, with that line; None without one."""
    for failure, pattern in _MEANINGS:
        for line in text.splitlines():
            if pattern.search(line):
                return failure, one_line(line)
    return None


def last_words(text: str) -> str:
    """Return the last line that is more than a rule; `no output` without one."""
    lines = [line for line in text.splitlines() if line.strip(" \t-*^C")]
    return one_line(lines[-1]) if lines else "no output"


def one_line(text: str) -> str:
    """Make text fit for a message: printable, one line, at most `MAX_WORDS` characters."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    words = " ".join(printable.split())
    return words if len(words) <= MAX_WORDS else words[: MAX_WORDS - 3] + "..."
