"""The programs that measure a network: their figures and failures, and how to install them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from probes.network.ports import Failure
from tuccl.errors import ToolMissingError

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


class Tool(StrEnum):
    """Programs by the names of their commands."""

    PING = "ping"
    IPERF3 = "iperf3"
    IB_WRITE_BW = "ib_write_bw"
    IB_WRITE_LAT = "ib_write_lat"
    LLDPCTL = "lldpctl"
    IBNETDISCOVER = "ibnetdiscover"


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure in GB/s or µs; its value is None exactly when `failure` is set."""

    value: float | None
    by: str
    """The tool, or `tcp connect`."""
    failure: Failure | None = None
    detail: str = ""
    """The tool's message about a failure, or a remark on the figure; one line."""
    samples: tuple[float, ...] = ()
    """Samples of a latency in µs, where the tool gives them."""


MEASURING = (Tool.PING, Tool.IPERF3)
"""Tools that measure every network."""
MEASURING_RDMA = (Tool.IB_WRITE_BW, Tool.IB_WRITE_LAT)
"""Tools that measure networks between RDMA devices."""


@dataclass(frozen=True, slots=True)
class _Package:
    debian: str
    """Name in Debian and Ubuntu."""
    red_hat: str
    """Name in RHEL and its derivatives and Fedora; similar in SUSE."""


_PACKAGES = {
    Tool.PING: _Package("iputils-ping", "iputils"),
    Tool.IPERF3: _Package("iperf3", "iperf3"),
    Tool.IB_WRITE_BW: _Package("perftest", "perftest"),
    Tool.IB_WRITE_LAT: _Package("perftest", "perftest"),
    Tool.LLDPCTL: _Package("lldpd", "lldpd"),
    Tool.IBNETDISCOVER: _Package("infiniband-diags", "infiniband-diags"),
}


def missing_tools(tools: Sequence[Tool] = (*MEASURING, *MEASURING_RDMA)) -> tuple[Tool, ...]:
    """Return those of `tools` that this host lacks, in their order."""
    return tuple(tool for tool in tools if shutil.which(tool) is None)


def install_hint(tool: Tool) -> str:
    """Return a phrase with the commands that install a tool."""
    package = _PACKAGES[tool]
    return f"apt-get install {package.debian} (Debian, Ubuntu) or dnf install {package.red_hat}"


def require(tool: Tool) -> None:
    """Check that this host has a tool.

    Raises:
        ToolMissingError: the tool is missing; the message says how to install it.
    """
    if shutil.which(tool) is None:
        raise ToolMissingError(f"{tool} is not installed: {install_hint(tool)}")
