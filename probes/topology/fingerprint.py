"""The identity of a machine: `fingerprint`.

Two machines have equal fingerprints if they are alike in structure and in the bandwidth classes of
links and of measured limits (see `probes.topology.bandwidth_class`). They differ when a link,
a NIC or a GPU is missing, slower by a class, attached elsewhere, or of another model. Names, bus
ids, latency, provenance and notes do not count.

The numbers of GPUs and NICs count, because a schedule addresses ranks. Inside one host they count
up to symmetry: exchanging two GPUs in equivalent positions changes nothing, renumbering a mesh so
that other ranks become neighbours does. In a cluster the global rank of every GPU and the host and
index of every NIC count; PCIe switches, network switches and CPUs have no number. Two hosts with
the same wiring may be exchanged, but exchanging two cables of one host changes the fingerprint.

Method: Weisfeiler-Leman colour refinement in two stages. Inside each host it runs once per device,
with that device marked, so that two rings of four differ from one ring of eight. Over the whole
machine it starts from the colours of the hosts and the numbers of GPUs and NICs, and runs once per
network switch, with that switch marked (without switches: once per host).
Different machines with equal colours exist in theory (strongly regular graphs) and not in practice.
Colours are 64-bit mixing sums, seeds and results BLAKE2b, so they are equal on every platform.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from probes.topology.bandwidth_class import bandwidth_class, limit_class, network_class
from probes.topology.devices import (
    NETWORK_NODE,
    Device,
    DeviceKind,
    Link,
    PairLimit,
    of_kind,
)

_Colours = npt.NDArray[np.uint64]

_MAX_ROUNDS = 64
"""Rounds of refinement; no machine has two devices more hops apart."""
_MARK = np.uint64(0x9E3779B97F4A7C15)
_ROWS_AT_ONCE = 32
"""Sets of marked devices in one step of numpy; bounds memory on large clusters."""
_MOST_MARKED = 1 << 22
"""Sets of marks times devices. Above this, a cluster is refined without marks, in time linear in
its size; ranks and rails still distinguish its hosts."""


def fingerprint(
    devices: Sequence[Device], links: Sequence[Link], limits: Sequence[PairLimit]
) -> str:
    """Return the machine's identity as 32 hex digits; its link figures must be valid."""
    node_of = {device.name: device.node for device in devices}
    hosts = sorted(set(node_of.values()) - {NETWORK_NODE})
    inside: dict[int, list[Link]] = {host: [] for host in hosts}
    for link in links:
        node = node_of[link.src]
        if node != NETWORK_NODE and node == node_of[link.dst]:
            inside[node].append(link)
    measured: dict[int, list[PairLimit]] = {host: [] for host in hosts}
    for limit in limits:
        measured[node_of[limit.src]].append(limit)
    members: dict[int, list[Device]] = {host: [] for host in hosts}
    for device in devices:
        if device.node != NETWORK_NODE:
            members[device.node].append(device)
    numbers = _numbers(devices) if len(hosts) > 1 else {}
    known: dict[bytes, _Host] = {}
    start: dict[str, int] = {}
    host_colours = []
    for host in hosts:
        graph = _graph(members[host], inside[host], measured[host])
        # Identical hosts are refined once.
        key = graph.key()
        if key not in known:
            known[key] = _refine_host(graph)
        host_colours.append(known[key].colour)
        for device, colour in zip(members[host], known[key].devices, strict=True):
            number = numbers.get(device.name, "")
            start[device.name] = _hash64("in host", known[key].colour, colour, number)
    if len(hosts) == 1 and len(devices) == len(members[hosts[0]]):
        return _digest("machine", host_colours)
    return _digest(
        "cluster",
        sorted(host_colours),
        _refine_cluster(devices, _graph(devices, links, limits), start),
    )


def _numbers(devices: Sequence[Device]) -> dict[str, str]:
    """Identities of a cluster's GPUs and NICs in sketches: the rank, or the host and its rail."""
    hosts = sorted({device.node for device in devices})
    host_position = {host: i for i, host in enumerate(hosts)}
    gpus = of_kind(devices, DeviceKind.GPU)
    numbers = {gpu.name: f"rank {rank}" for rank, gpu in enumerate(gpus)}
    before: dict[int, int] = {}
    for nic in of_kind(devices, DeviceKind.NIC):
        # NICs of equal index keep the order of the file.
        position = before[nic.node] = before.get(nic.node, -1) + 1
        numbers[nic.name] = f"host {host_position[nic.node]} rail {nic.index} position {position}"
    return numbers


@dataclass(frozen=True, slots=True)
class _Graph:
    """Colours of devices by position; links by the positions of their ends."""

    colours: _Colours
    src: npt.NDArray[np.int64]
    dst: npt.NDArray[np.int64]
    labels: _Colours
    ranks: tuple[int, ...]
    """Positions of the GPUs in rank order."""

    def key(self) -> bytes:
        arrays = (self.colours, self.src, self.dst, self.labels, np.array(self.ranks, np.int64))
        return b"".join(len(array).to_bytes(8, "big") + array.tobytes() for array in arrays)


@dataclass(frozen=True, slots=True)
class _Host:
    colour: int
    devices: tuple[int, ...]


def _graph(devices: Sequence[Device], links: Sequence[Link], limits: Sequence[PairLimit]) -> _Graph:
    position = {device.name: i for i, device in enumerate(devices)}
    gpus = [device for device in devices if device.kind is DeviceKind.GPU]
    ends = [(link.src, link.dst) for link in links] + [(pair.src, pair.dst) for pair in limits]
    labels = [_link_colour(link) for link in links] + [_limit_colour(limit) for limit in limits]
    return _Graph(
        colours=np.array([_device_colour(device) for device in devices], np.uint64),
        src=np.array([position[src] for src, _ in ends], np.int64),
        dst=np.array([position[dst] for _, dst in ends], np.int64),
        labels=np.array(labels, np.uint64),
        ranks=tuple(position[gpu.name] for gpu in sorted(gpus, key=lambda gpu: gpu.index)),
    )


def _device_colour(device: Device) -> int:
    if device.kind is DeviceKind.GPU:
        return _hash64(device.kind, device.model, device.compute_capability)
    if device.kind is DeviceKind.NIC:
        return _hash64(device.kind, network_class(device.line_rate_gb_per_s))
    return _hash64(device.kind)


def _link_colour(link: Link) -> int:
    return _hash64("link", link.kind, link.lanes, bandwidth_class(link))


def _limit_colour(limit: PairLimit) -> int:
    return _hash64("limit", limit_class(limit.bandwidth_gb_per_s))


def _refine_host(graph: _Graph) -> _Host:
    """Colour each device by the host's colours with that device marked, and the host by all."""
    count = len(graph.colours)
    marked = _refine(graph, [[position] for position in range(count)])
    devices = tuple(
        _hash64("device", int(marked[position, position]), *np.sort(marked[position]).tolist())
        for position in range(count)
    )
    # The colour of GPU j with GPU i marked, in rank order: only symmetries leave it unchanged.
    ranks = list(graph.ranks)
    order = marked[np.ix_(ranks, ranks)].ravel().tolist()
    return _Host(_hash64("host", sorted(devices), order), devices)


def _refine_cluster(devices: Sequence[Device], graph: _Graph, start: dict[str, int]) -> list[int]:
    for position, device in enumerate(devices):
        if device.name in start:
            graph.colours[position] = start[device.name]
    by_host: dict[int, list[int]] = {}
    for position, device in enumerate(devices):
        by_host.setdefault(device.node, []).append(position)
    switches = by_host.pop(NETWORK_NODE, [])
    marks = [[position] for position in switches] or list(by_host.values())
    if len(marks) * len(graph.colours) > _MOST_MARKED:
        marks = [[]]
    marked = np.sort(_refine(graph, marks), axis=1)
    return sorted(_hash64("view", row.tobytes().hex()) for row in marked.astype(">u8"))


def _refine(graph: _Graph, marks: Sequence[Sequence[int]]) -> _Colours:
    """Return refined colours, one row per set of marked devices.

    All rows are refined equally often, so those that are to be compared need one call.
    """
    count = len(graph.colours)
    colours = np.tile(graph.colours, (len(marks), 1))
    for row, positions in enumerate(marks):
        colours[row, list(positions)] ^= _MARK
    arriving, leaving = _Sum(graph.dst, count), _Sum(graph.src, count)
    distinct = 0
    for _ in range(min(count, _MAX_ROUNDS)):
        for first in range(0, len(marks), _ROWS_AT_ONCE):
            rows = colours[first : first + _ROWS_AT_ONCE]
            received = arriving.over(_mix(rows[:, graph.src] + graph.labels))
            sent = leaving.over(_mix(rows[:, graph.dst] ^ graph.labels))
            rows[:] = _mix(rows + _mix(received) + _mix(sent ^ _MARK))
        # Refinement only splits colours: once no row gains a colour, it has converged.
        found = sum(len(np.unique(row)) for row in colours)
        if found == distinct:
            break
        distinct = found
    return colours


class _Sum:
    """Sums over the links of each device, at one end of the links."""

    def __init__(self, ends: npt.NDArray[np.int64], count: int) -> None:
        self.order = np.argsort(ends, kind="stable")
        self.devices, self.starts = np.unique(ends[self.order], return_index=True)
        self.count = count

    def over(self, values: _Colours) -> _Colours:
        total = np.zeros((len(values), self.count), np.uint64)
        if len(self.devices):
            total[:, self.devices] = np.add.reduceat(values[:, self.order], self.starts, axis=1)
        return total


def _mix(values: _Colours) -> _Colours:
    """The finalizer of SplitMix64 (Steele, Lea, Flood 2014), element by element."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _hash64(*values: object) -> int:
    return int.from_bytes(hashlib.blake2b(_text(values), digest_size=8).digest(), "big")


def _digest(*values: object) -> str:
    return hashlib.blake2b(_text(values), digest_size=16).hexdigest()


def _text(values: Iterable[object]) -> bytes:
    return repr([str(value) for value in values]).encode()
