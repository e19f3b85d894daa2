"""What measuring the network found: `Findings`, notes for people and figures for the topology."""

from __future__ import annotations

from dataclasses import dataclass

from probes.network.campaign.outliers import Quantity, Role
from probes.network.port_groups import LinkClass, PortGroups
from probes.network.results import Failure, PairResult, PortPair


@dataclass(frozen=True, slots=True)
class ClassFigure:
    """What the pairs of a class do, without those that are out of line."""

    link_class: LinkClass
    quantity: Quantity
    median: float
    spread: float
    """Interquartile range over median."""
    count: int
    width: float = 0.0
    """From the 2.5th to the 97.5th percentile, over median."""


@dataclass(frozen=True, slots=True)
class SlowPort:
    """A port that is out of line in one role, whoever is at the other end."""

    port: int
    role: Role
    quantity: Quantity
    figure: float
    """GB/s or us: median of the measurements against ports that are fine."""
    expected: float
    """What its class does."""
    measurements: int
    repeated: bool
    """Measured again after it was suspected; False when no port had room for that."""


@dataclass(frozen=True, slots=True)
class SlowLink:
    """A pair that is out of line though both ports are fine with others, or have no others."""

    pair: PortPair
    quantity: Quantity
    figure: float
    expected: float
    measurements: int


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """Measurements that gave no figure, by tool and reason; isolated networks are not counted."""

    tool: str
    failure: Failure
    count: int
    detail: str
    """The first one's own words."""


@dataclass(frozen=True)
class Findings:
    """Everything that a campaign found. Ports are places in the list that was measured."""

    groups: PortGroups
    networks: tuple[int, ...]
    """Network of every port, -1 for one that cannot be measured."""
    results: tuple[PairResult, ...]
    """All measurements in the order they were made."""
    rounds: int
    figures: tuple[ClassFigure, ...]
    slow_ports: tuple[SlowPort, ...]
    slow_links: tuple[SlowLink, ...]
    dead_links: tuple[PortPair, ...]
    """Nothing came through, though both ports reach others."""
    unreachable_ports: tuple[int, ...]
    unreachable_hosts: tuple[int, ...]
    """Hosts of which no measurable port answers."""
    unmeasured_ports: tuple[int, ...]
    """Without a usable address, without anybody to measure with, or no measurement gave a figure
    (and none said that nothing comes through)."""
    recovered: tuple[PortPair, ...]
    """Out of line at first, fine when measured again."""
    failures: tuple[ToolFailure, ...]
    notes: tuple[str, ...]
