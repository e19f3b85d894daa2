"""The programs that measure a network: those that this host lacks, and how to install them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tuccl.errors import ToolMissingError


class Tool(StrEnum):
    """Programs by the names of their commands."""

    PING = "ping"
    IPERF3 = "iperf3"
    IB_WRITE_BW = "ib_write_bw"
    IB_WRITE_LAT = "ib_write_lat"
    LLDPCTL = "lldpctl"
    IBNETDISCOVER = "ibnetdiscover"


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
