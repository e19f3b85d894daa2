"""The rules of a topology; a broken rule is reported in one line.

`check_structure` checks the rules of every topology, complete or not; `validate` adds the needs of
tuning: two or more GPUs, each of which reaches every other.
"""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Iterable

from probes.topology.graph import NETWORK_NODE, Device, DeviceKind, Link, Topology
from tuccl.errors import InvalidTopologyError

MAX_DEVICES = 65_536
"""Devices of a topology; a file with more is damaged."""
MAX_HOST_DEVICES = 1_024
"""Devices of one host; real hosts have a few dozen, and the fingerprint marks each of them."""
MAX_LINKS = 1_048_576
"""Links of a topology; a file with more is damaged."""
MAX_NAME = 256
"""Characters in a name of a topology or device; messages and tables print names whole."""

NAME_RULE = f"a name has printable characters only, {MAX_NAME} at most"
MODEL_RULE = "its model must be PCI vendor:device in lower-case hex like 10de:20b2, or empty"

_MODEL = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")


def is_name(text: str) -> bool:
    """Whether the text is a valid name: printable, at most `MAX_NAME` characters."""
    return text.isprintable() and len(text) <= MAX_NAME


def is_model(text: str) -> bool:
    """Whether the text is a `Device.model`: PCI `vendor:device` in lower-case hex, or empty."""
    return not text or _MODEL.fullmatch(text) is not None


def check_structure(topology: Topology) -> None:
    """Check names, links and figures.

    Raises:
        InvalidTopologyError: the first rule broken, in one line.
    """
    if not is_name(topology.name):
        raise InvalidTopologyError(f"a topology named {topology.name!a:.60}; {NAME_RULE}")
    _check_size(topology)
    _check_devices(topology)
    for link in topology.links:
        _check_link(topology, link)
    _check_limits(topology)
    for host in topology.hosts:
        if not is_name(host):
            raise InvalidTopologyError(
                f"topology '{topology.name}': a host named {host!a:.60}; {NAME_RULE}"
            )


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
    for noun, count, limit in (
        ("devices", len(topology.devices), MAX_DEVICES),
        ("links", len(topology.links), MAX_LINKS),
    ):
        if count > limit:
            raise InvalidTopologyError(
                f"topology '{topology.name}': {count:,} {noun}, at most {limit:,} are supported"
            )
    on_host = Counter(device.node for device in topology.devices if device.node != NETWORK_NODE)
    for node, count in on_host.most_common(1):
        if count > MAX_HOST_DEVICES:
            raise InvalidTopologyError(
                f"topology '{topology.name}': {count:,} devices on host {node}, at most "
                f"{MAX_HOST_DEVICES:,} are supported"
            )


def _check_devices(topology: Topology) -> None:
    seen: set[str] = set()
    for device in topology.devices:
        where = f"topology '{topology.name}': device '{device.name}'"
        _check_identity(topology, device)
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


def _check_identity(topology: Topology, device: Device) -> None:
    if not device.name or not is_name(device.name):
        raise InvalidTopologyError(
            f"topology '{topology.name}': a {device.kind} named {device.name!a:.60}; {NAME_RULE}"
        )
    if not is_model(device.model):
        raise InvalidTopologyError(
            f"topology '{topology.name}': device '{device.name}': {MODEL_RULE}, "
            f"not {device.model!a:.40}"
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
    if not math.isfinite(link.spread) or link.spread < 0:
        raise InvalidTopologyError(f"{where}: spread {link.spread}; it must be zero or more")


def _check_limits(topology: Topology) -> None:
    seen: set[tuple[str, str]] = set()
    for limit in topology.limits:
        where = f"topology '{topology.name}': measured limit {limit.src} -> {limit.dst}"
        ends = [topology.device.get(end) for end in (limit.src, limit.dst)]
        if ends[0] is None or ends[1] is None or ends[0].node != ends[1].node:
            raise InvalidTopologyError(f"{where}: it must name two devices of one host")
        if limit.src == limit.dst or (limit.src, limit.dst) in seen:
            raise InvalidTopologyError(f"{where}: it must name two devices, and a pair once")
        seen.add((limit.src, limit.dst))
        if not (math.isfinite(limit.bandwidth_gb_per_s) and limit.bandwidth_gb_per_s > 0):
            raise InvalidTopologyError(
                f"{where}: bandwidth {limit.bandwidth_gb_per_s} GB/s; it must be above zero"
            )
        if not math.isfinite(limit.spread) or limit.spread < 0:
            raise InvalidTopologyError(f"{where}: spread {limit.spread}; it must be zero or more")


def _check_reachability(topology: Topology) -> None:
    """Check that all GPUs reach each other: the first reaches all, and all reach the first."""
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
