"""The part of a machine that the communicators of a shape use, to tell which changes touch them.

A communicator uses its GPUs, the links on the paths between those of one host and, on several
hosts, the NICs next to its GPUs with the paths to them and the network. What else a host has cannot
change its times: another GPU's NVLink for a rail, a NIC for the GPUs of one host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from lookup_tables.table import Shape
from probes.comparison.changes import describe_changes
from probes.topology.graph import DeviceKind, Link, Topology
from probes.topology.hosts import hosts_alike
from tuccl.models.figures import communicator_shape
from tuccl.models.siblings import Communicator, communicators, used_links
from tuccl.search.trials.shapes import memberships

_NUMBERED = (DeviceKind.GPU, DeviceKind.NIC)


def has_communicators(topology: Topology, shape: Shape) -> bool:
    """Whether communicators of a shape divide the GPUs of a machine."""
    return memberships(shape, communicator_shape(topology)) is not None


def is_touched(before: Topology, now: Topology, shape: Shape) -> bool:
    """Whether a change of the machine may change the times of a shape's communicators.

    Both machines have such communicators. Bandwidths are compared by classes, as in fingerprints,
    and equal communicators count once, so that a host more or less touches none inside hosts.
    """
    return _parts(before, shape) != _parts(now, shape)


def changes_of(before: Topology, now: Topology, shape: Shape) -> tuple[str, ...]:
    """Return the changes that touch a shape's communicators, one sentence each.

    Empty where no single device or link that they use explains the difference.
    """
    # What is used by one of them only is no device or link that came or went.
    used = _used(before, shape) | _used(now, shape)
    old, new = (_only(machine, used) for machine in (before, now))
    return () if old.fingerprint() == new.fingerprint() else describe_changes(old, new)


def _parts(topology: Topology, shape: Shape) -> frozenset[str]:
    """Fingerprints of the parts that the communicators of a shape use."""
    if shape.nodes > 1:
        return frozenset(_fingerprints(topology, shape))
    return frozenset(
        found
        for group in hosts_alike(topology)
        for found in _fingerprints(group.example, _within(shape, group.example))
    )


def parts_by_sibling(topology: Topology, shape: Shape, stride: int = 1) -> dict[int, str]:
    """Return the fingerprint of the part that each sibling of a division uses, by its number.

    Of hosts that are alike the first counts, as in `tuccl.models.placements`.
    """
    whole = communicator_shape(topology)
    if shape.nodes > 1 or shape == whole:
        return dict(enumerate(_fingerprints(topology, shape, stride)))
    nodes = sorted({gpu.node for gpu in topology.gpus})
    found: dict[int, str] = {}
    for group in hosts_alike(topology):
        if memberships(shape, communicator_shape(group.example), stride) is not None:
            first = nodes.index(group.nodes[0]) * (whole.ranks_per_node // shape.ranks)
            found |= dict(enumerate(_fingerprints(group.example, shape, stride), first))
    return found


def _within(shape: Shape, host: Topology) -> Shape:
    """Return the shape; on a host with fewer GPUs than others the communicator of all of them."""
    whole = communicator_shape(host)
    return shape if memberships(shape, whole) is not None else whole


def _fingerprints(topology: Topology, shape: Shape, stride: int = 1) -> Iterable[str]:
    found = communicators(topology, shape, stride)
    used = [used_links(topology, each.gpus, each.nics) for each in found]
    users = Counter(link for links in used for link in links)
    for each, links in zip(found, used, strict=True):
        shared = {link: users[link] for link in links}
        yield _part(topology, each, shared).fingerprint()


def _part(topology: Topology, each: Communicator, links: dict[Link, int]) -> Topology:
    """Return the devices and links that a communicator uses, with its share of each link."""
    kept = [
        replace(link, bandwidth_gb_per_s=link.bandwidth_gb_per_s / links[link])
        for link in topology.links
        if link in links
    ]
    ends = {name for link in kept for name in (link.src, link.dst)}
    return _numbered_anew(_cut(topology, {*each.gpus, *each.nics, *ends}, kept))


def _used(topology: Topology, shape: Shape) -> set[tuple[str, ...]]:
    """Return the devices, and the ends of the links, that any communicator of a shape uses."""
    found = communicators(topology, shape)
    links = {link for each in found for link in used_links(topology, each.gpus, each.nics)}
    devices = {(name,) for each in found for name in (*each.gpus, *each.nics)}
    return devices | {(link.src, link.dst) for link in links}


def _only(topology: Topology, used: set[tuple[str, ...]]) -> Topology:
    names = {name for ends in used for name in ends}
    return _cut(topology, names, [link for link in topology.links if (link.src, link.dst) in used])


def _cut(topology: Topology, names: set[str], links: Iterable[Link]) -> Topology:
    return replace(
        topology,
        devices=tuple(device for device in topology.devices if device.name in names),
        links=tuple(links),
        limits=tuple(
            limit for limit in topology.limits if limit.src in names and limit.dst in names
        ),
    )


def _numbered_anew(topology: Topology) -> Topology:
    """Return a part whose GPUs and NICs count from 0 on each host.

    The number that a device has among all of its host says nothing about a communicator.
    """
    counts: Counter[tuple[int, DeviceKind]] = Counter()
    devices = []
    for device in sorted(topology.devices, key=lambda each: (each.node, each.index)):
        if device.kind in _NUMBERED:
            place = (device.node, device.kind)
            devices.append(replace(device, index=counts[place]))
            counts[place] += 1
        else:
            devices.append(device)
    return replace(topology, devices=tuple(devices))
