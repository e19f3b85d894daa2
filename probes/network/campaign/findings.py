"""The findings of a campaign: `Findings`, with notes for people and figures for the topology."""

from __future__ import annotations

from dataclasses import dataclass

from probes.network.campaign.outliers import Quantity, Role
from probes.network.port_groups import LinkClass, PortGroups
from probes.network.results import Failure, PairResult, PortPair


@dataclass(frozen=True, slots=True)
class ClassFigure:
    """Figure of a class of pairs, without outliers."""

    link_class: LinkClass
    quantity: Quantity
    median: float
    spread: float
    """Interquartile range over median."""
    count: int
    width: float = 0.0
    """Range from the 2.5th to the 97.5th percentile, over median."""


@dataclass(frozen=True, slots=True)
class SlowPort:
    """A port that is an outlier in one role, with any peer."""

    port: int
    role: Role
    quantity: Quantity
    figure: float
    """Median of the measurements with normal ports, in GB/s or us."""
    expected: float
    """Figure of its class."""
    measurements: int
    repeated: bool
    """Whether it was measured again as a suspect; False when no port had budget left."""


@dataclass(frozen=True, slots=True)
class SlowLink:
    """A pair that is an outlier though both ports are normal with other peers, or have none."""

    pair: PortPair
    quantity: Quantity
    figure: float
    expected: float
    measurements: int


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """Measurements without a figure, by tool and cause, isolated networks excluded."""

    tool: str
    failure: Failure
    count: int
    detail: str
    """Message of the first failure."""


@dataclass(frozen=True)
class Findings:
    """Findings of a campaign; ports are indices in its list of ports."""

    groups: PortGroups
    networks: tuple[int, ...]
    """Network of every port; -1 for a port that cannot be measured."""
    results: tuple[PairResult, ...]
    """All results in the order of measurement."""
    rounds: int
    figures: tuple[ClassFigure, ...]
    slow_ports: tuple[SlowPort, ...]
    slow_links: tuple[SlowLink, ...]
    dead_links: tuple[PortPair, ...]
    """Pairs without traffic, though both ports reach other ports."""
    unreachable_ports: tuple[int, ...]
    unreachable_hosts: tuple[int, ...]
    """Hosts without a measurable port that answers."""
    unmeasured_ports: tuple[int, ...]
    """Ports without a usable address, without a peer, or without a figure (unreachable ports
    excluded)."""
    recovered: tuple[PortPair, ...]
    """Pairs that were outliers at first and normal when measured again."""
    failures: tuple[ToolFailure, ...]
    notes: tuple[str, ...]
