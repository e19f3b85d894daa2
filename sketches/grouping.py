"""Stage 2 of TuCCL's pruning: groups of NICs of matched bandwidth across nodes (section III-B).

A group has at most one NIC per node. NICs with the same index (one rail) and matched bandwidths are
grouped first; the remaining groups are paired greedily, the pair with the least variance of
bandwidth first. Nodes without a common group (no matching NIC left) are connected by a fallback
group of their best matching NICs, whose reason says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import pvariance

from probes.topology.graph import Topology
from probes.topology.paths import network_path
from sketches.binding import nic_gb_per_s

MATCHED_RATIO = 1.25
"""Largest ratio of matched bandwidths: measuring noise and slot differences stay below it, the next
speed class (x2) above."""


@dataclass(frozen=True, slots=True)
class NicGroup:
    """NICs of different nodes that exchange data."""

    nics: tuple[str, ...]
    """Names of the NICs, by node."""
    reason: str


def group_nics(topology: Topology, nics: Iterable[str]) -> tuple[NicGroup, ...]:
    """Group the given NICs across nodes; groups of one NIC connect nothing and are kept.

    These are usually the NICs that stage 1 bound.
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
        matching = next(fitting, None)
        if matching is None:
            groups.append([nic])
        else:
            matching.append(nic)
    return groups


def _pair_leftovers(topology: Topology, groups: list[list[str]]) -> list[list[str]]:
    groups = list(groups)
    while True:
        pairs = [
            (*_mismatch(topology, left, right), i, j)
            for i, left in enumerate(groups)
            for j, right in enumerate(groups[i + 1 :], i + 1)
            if _fits(topology, left, right)
        ]
        if not pairs:
            return groups
        *_, i, j = min(pairs)
        groups[i] = sorted(groups[i] + groups[j], key=lambda nic: topology.device[nic].node)
        del groups[j]


def _mismatch(topology: Topology, left: Sequence[str], right: Sequence[str]) -> tuple[float, int]:
    bandwidths = [nic_gb_per_s(topology, nic) for nic in (*left, *right)]
    rails = abs(topology.device[left[0]].index - topology.device[right[0]].index)
    return pvariance(bandwidths), rails


def _fits(topology: Topology, left: Sequence[str], right: Sequence[str]) -> bool:
    """Return whether groups have different nodes, matched bandwidths and a network path."""
    if {topology.device[nic].node for nic in left} & {topology.device[nic].node for nic in right}:
        return False
    bandwidths = [nic_gb_per_s(topology, nic) for nic in (*left, *right)]
    return max(bandwidths) <= MATCHED_RATIO * min(bandwidths) and _connected(
        topology, left[0], right[0]
    )


def _connected(topology: Topology, left: str, right: str) -> bool:
    return (
        network_path(topology, left, right) is not None
        and network_path(topology, right, left) is not None
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
    """Connect nodes without a common group by the NICs whose bandwidths differ least."""
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
