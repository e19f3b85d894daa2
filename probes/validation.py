"""The rules a topology must keep, each broken rule reported in one line.

`check_structure` holds for every topology, also for one that is still being put together;
`validate` adds what tuning needs: two GPUs or more, each able to reach every other.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from probes.errors import InvalidTopologyError
from probes.topology import NETWORK_NODE, DeviceKind, Link, Topology

MAX_DEVICES = 65_536
"""More is a damaged file, not a machine: 8,192 hosts with 8 GPUs would need bigger tables too."""
MAX_LINKS = 1_048_576
"""As `MAX_DEVICES`."""


def check_structure(topology: Topology) -> None:
    """Check names, links and figures.

    Raises:
        InvalidTopologyError: the first rule broken, in one line.
    """
    _check_size(topology)
    _check_devices(topology)
    for link in topology.links:
        _check_link(topology, link)


def validate(topology: Topology) -> None:
    """Check that the topology can exist and can be tuned.

    Raises:
        InvalidTopologyError: the first rule broken, in one line.
    """
    check_structure(topology)
    gpus = topology.gpus
    if len(gpus) < 2:
        have = "with one GPU" if gpus else "without GPUs"
        raise InvalidTopologyError(
            f"topology '{topology.name}': a topology {have}: nothing to tune; it takes two or more"
        )
    _check_reachability(topology)


def _check_size(topology: Topology) -> None:
    for what, count, limit in (
        ("devices", len(topology.devices), MAX_DEVICES),
        ("links", len(topology.links), MAX_LINKS),
    ):
        if count > limit:
            raise InvalidTopologyError(
                f"topology '{topology.name}': {count:,} {what}, at most {limit:,} are supported"
            )


def _check_devices(topology: Topology) -> None:
    seen: set[str] = set()
    for device in topology.devices:
        where = f"topology '{topology.name}': device '{device.name}'"
        if not device.name or not device.name.isprintable():
            raise InvalidTopologyError(
                f"topology '{topology.name}': a {device.kind} named {device.name!a}; "
                "every device needs a name of printable characters"
            )
        if device.name in seen:
            raise InvalidTopologyError(f"{where}: two devices of this name; rename one")
        seen.add(device.name)
        if device.node < NETWORK_NODE:
            raise InvalidTopologyError(
                f"{where}: node {device.node}; hosts count from 0, {NETWORK_NODE} is the network"
            )
        if device.kind is DeviceKind.GPU and device.node == NETWORK_NODE:
            raise InvalidTopologyError(f"{where}: a GPU outside every host; give it a node from 0")
        if not (math.isfinite(device.line_rate_gb_per_s) and device.line_rate_gb_per_s >= 0):
            raise InvalidTopologyError(
                f"{where}: line rate {device.line_rate_gb_per_s} GB/s; use 0 when it is unknown"
            )


def _check_link(topology: Topology, link: Link) -> None:
    where = f"topology '{topology.name}': link {link.src} -> {link.dst}"
    for end in (link.src, link.dst):
        if end not in topology.device:
            raise InvalidTopologyError(f"{where}: there is no device '{end}'")
    if link.src == link.dst:
        raise InvalidTopologyError(f"{where}: leads from a device to itself; remove it")
    if not math.isfinite(link.bandwidth_gb_per_s) or link.bandwidth_gb_per_s <= 0:
        raise InvalidTopologyError(
            f"{where}: bandwidth {link.bandwidth_gb_per_s} GB/s; "
            "it must be above zero and finite, leave the link out if it is down"
        )
    if not math.isfinite(link.latency_us) or link.latency_us < 0:
        raise InvalidTopologyError(
            f"{where}: latency {link.latency_us} us; it must be zero or more and finite"
        )
    if link.lanes < 1:
        raise InvalidTopologyError(f"{where}: {link.lanes} lanes; a link has one or more")


def _check_reachability(topology: Topology) -> None:
    """Every GPU reaches every other exactly when the first reaches all and all reach the first."""
    first = topology.gpus[0].name
    forwards = _reached(first, ((link.src, link.dst) for link in topology.links))
    backwards = _reached(first, ((link.dst, link.src) for link in topology.links))
    for gpu in topology.gpus[1:]:
        for reached, src, dst in ((forwards, first, gpu.name), (backwards, gpu.name, first)):
            if gpu.name not in reached:
                raise InvalidTopologyError(
                    f"topology '{topology.name}': GPU '{src}' cannot reach GPU '{dst}' over any "
                    "link; add the missing links, or tune the parts as machines of their own"
                )


def _reached(start: str, pairs: Iterable[tuple[str, str]]) -> set[str]:
    following: dict[str, list[str]] = {}
    for src, dst in pairs:
        following.setdefault(src, []).append(dst)
    reached = {start}
    queue = deque([start])
    while queue:
        for name in following.get(queue.popleft(), ()):
            if name not in reached:
                reached.add(name)
                queue.append(name)
    return reached
