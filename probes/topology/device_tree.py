"""The PCIe trees of one host: CPUs at the roots, switches below, GPUs and NICs at the leaves.

A topology is a graph; exports, listings and pictures need trees. Links that close a loop (direct
links between switches) are not part of a tree and are listed separately.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Provenance, Topology
from tuccl.errors import InvalidTopologyError

MAX_DEPTH = 32
"""Levels below a CPU; real machines have up to six."""

_FORWARDING = (DeviceKind.CPU, DeviceKind.PCIE_SWITCH)
_ROOT_ORDER = (*_FORWARDING, DeviceKind.GPU, DeviceKind.NIC)


@dataclass(frozen=True, slots=True)
class Branch:
    """A device and the subtree below it."""

    device: Device
    uplink: Link | None
    """Link from the device to its parent; None for a root."""
    children: tuple[Branch, ...]
    """Branches below, in the order in which the topology lists their links."""

    def walk(self) -> Iterator[Branch]:
        """Iterate over the branch and all branches below, parents before children."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class HostTrees:
    """The trees of one host, and the links outside them."""

    roots: tuple[Branch, ...]
    """CPUs by index, then switches, GPUs and NICs that no CPU reaches."""
    switch_links: tuple[Link, ...]
    """PCIe links between switches outside the trees, in the direction that is listed first."""

    def walk(self) -> Iterator[Branch]:
        """Iterate over every branch, parents before children."""
        for root in self.roots:
            yield from root.walk()


def host_trees(host: Topology) -> HostTrees:
    """Return the trees of a topology of one host (see `probes.topology.hosts.split_hosts`).

    Raises:
        InvalidTopologyError: PCIe switches are nested deeper than `MAX_DEPTH`.
    """
    members = [device for device in host.devices if device.kind in _ROOT_ORDER]
    members.sort(key=lambda device: (_ROOT_ORDER.index(device.kind), device.index))
    roots = [device for device in members if device.kind is DeviceKind.CPU]
    above: dict[str, Link] = {}
    reached = {device.name for device in roots}
    # Direct links between switches are assumed, so links of better provenance place devices first.
    _grow(host, [device.name for device in roots], above, reached, certain=True)
    _grow(host, [d.name for d in members if d.name in reached], above, reached)
    for device in members:
        if device.name not in reached:
            roots.append(device)
            reached.add(device.name)
            _grow(host, [device.name], above, reached)
    below: dict[str, list[Link]] = {}
    for link in host.links:
        if above.get(link.dst) is link:
            below.setdefault(link.src, []).append(link)
    return HostTrees(
        roots=tuple(_branch(host, root, None, below) for root in roots),
        switch_links=tuple(_switch_links(host, above)),
    )


def _grow(
    host: Topology,
    start: Iterable[str],
    above: dict[str, Link],
    reached: set[str],
    *,
    certain: bool = False,
) -> None:
    """Extend the trees breadth first from `start`; `above` gets the link down to each device."""
    queue = deque(start)
    while queue:
        name = queue.popleft()
        if host.device[name].kind not in _FORWARDING:
            continue
        for link in host.links_from[name]:
            if link.kind is not LinkKind.PCIE or link.dst in reached:
                continue
            if certain and link.provenance is Provenance.ASSUMED:
                continue
            reached.add(link.dst)
            above[link.dst] = link
            queue.append(link.dst)


def _branch(
    host: Topology, device: Device, down: Link | None, below: dict[str, list[Link]], depth: int = 0
) -> Branch:
    if depth > MAX_DEPTH:
        raise InvalidTopologyError(
            f"topology '{host.name}': '{device.name}' lies more than {MAX_DEPTH} PCIe links below "
            "its CPU; remove switches that are none"
        )
    uplink = down
    for link in host.links_between.get((device.name, down.src), ()) if down else ():
        if link.kind is LinkKind.PCIE:
            uplink = link
    return Branch(
        device=device,
        uplink=uplink,
        children=tuple(
            _branch(host, host.device[link.dst], link, below, depth + 1)
            for link in below.get(device.name, ())
        ),
    )


def _switch_links(host: Topology, above: dict[str, Link]) -> Iterator[Link]:
    covered: set[frozenset[str]] = {frozenset((link.src, link.dst)) for link in above.values()}
    for link in host.links:
        ends = frozenset((link.src, link.dst))
        kinds = {host.device[end].kind for end in ends}
        if link.kind is LinkKind.PCIE and kinds == {DeviceKind.PCIE_SWITCH} and ends not in covered:
            covered.add(ends)
            yield link
