"""Stage 2 of TuCCL's pruning: NICs of matched bandwidth form groups across nodes (section III-B).

A group holds at most one NIC per node. NICs with the same index (one rail) whose bandwidths match
come together first; what is left over is paired greedily, the pair of groups with the least
variance of bandwidth first. Nodes that end up in no common group (no matching NIC left) are joined
by a fallback group of their best matching NICs, which says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import pvariance

from probes.topology.graph import Topology
from probes.topology.paths import network_path
from sketches.binding import nic_gb_per_s

MATCHED_RATIO = 1.25
"""Bandwidths match when the larger is at most this multiple of the smaller: measuring noise and
slot differences stay below it, the next speed class (x2) above."""


@dataclass(frozen=True, slots=True)
class NicGroup:
    """NICs of different nodes that talk to each other."""

    nics: tuple[str, ...]
    """By node."""
    reason: str


def group_nics(topology: Topology, nics: Iterable[str]) -> tuple[NicGroup, ...]:
    """Groups the given NICs across nodes; groups of one NIC connect nothing and are kept.

    Args:
        topology: The machine.
        nics: Names of the NICs to group, usually those that stage 1 bound.
    """
    names = sorted(set(nics), key=lambda nic: _place(topology, nic))
    rails = _by_rail(topology, names)
    merged = _pair_leftovers(topology, rails)
    groups = [NicGroup(tuple(group), _reason(topology, group)) for group in merged]
    return (*groups, *_fallbacks(topology, merged))


def _place(topology: Topology, nic: str) -> tuple[int, int, str]:
    device = topology.device[nic]
    return device.index, device.node, nic


def _by_rail(topology: Topology, names: Sequence[str]) -> list[list[str]]:
    groups: list[list[str]] = []
    for nic in names:
        rail = topology.device[nic].index
        fitting = (
            group
            for group in groups
            if topology.device[group[0]].index == rail and _fits(topology, group, [nic])
        )
        home = next(fitting, None)
        if home is None:
            groups.append([nic])
        else:
            home.append(nic)
    return groups


def _pair_leftovers(topology: Topology, groups: list[list[str]]) -> list[list[str]]:
    groups = list(groups)
    while True:
        pairs = [
            (*_mismatch(topology, one, other), i, j)
            for i, one in enumerate(groups)
            for j, other in enumerate(groups[i + 1 :], i + 1)
            if _fits(topology, one, other)
        ]
        if not pairs:
            return groups
        *_, i, j = min(pairs)
        groups[i] = sorted(groups[i] + groups[j], key=lambda nic: topology.device[nic].node)
        del groups[j]


def _mismatch(topology: Topology, one: Sequence[str], other: Sequence[str]) -> tuple[float, int]:
    bandwidths = [nic_gb_per_s(topology, nic) for nic in (*one, *other)]
    rails = abs(topology.device[one[0]].index - topology.device[other[0]].index)
    return pvariance(bandwidths), rails


def _fits(topology: Topology, one: Sequence[str], other: Sequence[str]) -> bool:
    """Different nodes, matched bandwidth, and a way through the network."""
    if {topology.device[nic].node for nic in one} & {topology.device[nic].node for nic in other}:
        return False
    bandwidths = [nic_gb_per_s(topology, nic) for nic in (*one, *other)]
    return max(bandwidths) <= MATCHED_RATIO * min(bandwidths) and _connected(
        topology, one[0], other[0]
    )


def _connected(topology: Topology, one: str, other: str) -> bool:
    return (
        network_path(topology, one, other) is not None
        and network_path(topology, other, one) is not None
    )


def _reason(topology: Topology, group: Sequence[str]) -> str:
    bandwidths = [nic_gb_per_s(topology, nic) for nic in group]
    indices = {topology.device[nic].index for nic in group}
    shared = f"rail {indices.pop()}" if len(indices) == 1 else "paired across rails"
    spread = (
        f"{bandwidths[0]:.4g} GB/s each"
        if min(bandwidths) == max(bandwidths)
        else f"{min(bandwidths):.4g} to {max(bandwidths):.4g} GB/s"
    )
    return f"{shared}, {spread}"


def _fallbacks(topology: Topology, groups: Sequence[Sequence[str]]) -> list[NicGroup]:
    """Joins nodes that no group joins, by the NICs whose bandwidths differ least."""
    islands: list[list[str]] = []
    for group in groups:
        nodes = {topology.device[nic].node for nic in group}
        touched = [
            island for island in islands if nodes & {topology.device[nic].node for nic in island}
        ]
        islands = [island for island in islands if island not in touched]
        islands.append([*(nic for island in touched for nic in island), *group])
    islands.sort(key=lambda island: min(topology.device[nic].node for nic in island))
    found: list[NicGroup] = []
    while len(islands) > 1:
        first = islands[0]
        pairs = [
            (*_mismatch(topology, [near], [far]), near, far, number)
            for number, island in enumerate(islands[1:], 1)
            for near in first
            for far in island
            if _connected(topology, near, far)
        ]
        if not pairs:
            return found
        *_, near, far, number = min(pairs)
        found.append(
            NicGroup(
                (near, far),
                "fallback: their nodes share no group of matched bandwidth, so the closest "
                "match joins them",
            )
        )
        first += islands.pop(number)
    return found
