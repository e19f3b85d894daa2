"""The programs that measure a network: which of them this host has, and how to get the others."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from probes.errors import ProbeError


class Tool(StrEnum):
    """A program, by the name of its command."""

    PING = "ping"
    IPERF3 = "iperf3"
    IB_WRITE_BW = "ib_write_bw"
    IB_WRITE_LAT = "ib_write_lat"
    LLDPCTL = "lldpctl"
    IBNETDISCOVER = "ibnetdiscover"


MEASURING = (Tool.PING, Tool.IPERF3)
"""What every network is measured with."""
MEASURING_RDMA = (Tool.IB_WRITE_BW, Tool.IB_WRITE_LAT)
"""What networks between RDMA devices are measured with."""


@dataclass(frozen=True, slots=True)
class _Package:
    debian: str
    """Debian and Ubuntu."""
    red_hat: str
    """RHEL and its relatives, Fedora; the same or alike at SUSE."""


_PACKAGES = {
    Tool.PING: _Package("iputils-ping", "iputils"),
    Tool.IPERF3: _Package("iperf3", "iperf3"),
    Tool.IB_WRITE_BW: _Package("perftest", "perftest"),
    Tool.IB_WRITE_LAT: _Package("perftest", "perftest"),
    Tool.LLDPCTL: _Package("lldpd", "lldpd"),
    Tool.IBNETDISCOVER: _Package("infiniband-diags", "infiniband-diags"),
}


class ToolMissingError(ProbeError):
    """A program that a measurement needs is not installed."""


def missing_tools(tools: Sequence[Tool] = (*MEASURING, *MEASURING_RDMA)) -> tuple[Tool, ...]:
    """Those of `tools` that this host lacks, in their order."""
    return tuple(tool for tool in tools if shutil.which(tool) is None)


def install_hint(tool: Tool) -> str:
    """The commands that install a tool, in half a sentence."""
    package = _PACKAGES[tool]
    return f"apt-get install {package.debian} (Debian, Ubuntu) or dnf install {package.red_hat}"


def require(tool: Tool) -> None:
    """See that this host has a tool.

    Raises:
        ToolMissingError: it has not; the message says how to install it.
    """
    if shutil.which(tool) is None:
        raise ToolMissingError(f"{tool} is not installed: {install_hint(tool)}")
