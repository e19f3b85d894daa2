"""`MachineFigures`: the figures of a topology that a cost model of NCCL needs.

NCCL reduces a machine to a bandwidth inside a node, one between nodes, a link type for each, a GPU
generation and a channel count (NCCL 2.30, `src/graph/search.cc`); so does this module, from a
`Topology`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import permutations

from lookup_tables.table import Shape
from probes.topology.figure_text import gfx_name
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Topology
from probes.topology.paths import local_path
from tuccl.models.rack_shares import NO_RACKS, RackShares, rack_shares

_SPEEDS = (40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0)
_SPEEDS_SM90 = (60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0)
"""Channel speeds that NCCL's graph search tries, GB/s (NCCL 2.30, src/graph/search.cc)."""
_NETWORK_SPEEDS = (48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0)
_NETWORK_SPEEDS_SM90 = (48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0)
"""The same where channels cross the network."""
_DOUBLED_GB_PER_S = 25.0
_NVLINK_SHARE = 0.82
"""NCCL counts 20 to 20.6 GB/s for an NVLink of nominally 25 (NCCL 2.30, src/graph/topo.h)."""
_MAX_CHANNELS = 16
"""Most channels of the graph search, before they are doubled."""
_MOST_CHANNELS = 32
_RDMA_DEVICES = ("mlx", "bnxt_re", "irdma", "roce", "ib", "efa", "hfi", "qedr")
"""Prefixes of RDMA devices' names in /sys/class/infiniband, by drivers and udev."""


class Fabric(StrEnum):
    """Kind of link between the GPUs of one node."""

    NVLINK = "nvlink"
    PCI = "pci"


class Generation(StrEnum):
    """GPU generations that NCCL's cost model tells apart."""

    VOLTA = "volta"
    AMPERE = "ampere"
    HOPPER = "hopper"
    BLACKWELL = "blackwell"


@dataclass(frozen=True, slots=True)
class MulticastFigures:
    """What NCCL's graph search finds for NVLS."""

    heads: int
    """GPUs of a node that pull reduced data out of the NVSwitches, and push results into them."""
    head_gb_per_s: float
    """Bandwidth of a head inside its node, which every GPU spends once and a head twice."""
    nic_gb_per_s: float
    """Bandwidth of a head to the other nodes; 0 on a single node."""


@dataclass(frozen=True, slots=True)
class SummingFigures:
    """What NCCL's graph search finds for CollNet, where switches of the network sum."""

    heads: int
    """GPUs of a node that hand their share of the data to a NIC; 0 without NVSwitches, which
    CollNetDirect needs."""
    inside_gb_per_s: float
    """Bandwidth of a head inside its node for CollNetDirect; 0 without any."""
    between_gb_per_s: float
    """The same on its NIC."""


@dataclass(frozen=True, slots=True)
class MachineFigures:
    """A machine as a cost model sees it."""

    shape: Shape
    fabric: Fabric
    generation: Generation
    intra_gb_per_s: float
    """Bandwidth of one GPU to the others of its node."""
    nics_per_node: int
    nic_gb_per_s: float
    """Bandwidth of one NIC, limited by the PCIe path to its nearest GPU, of which NICs divide what
    they share; 0 on a single node."""
    network_latency_us: float
    channels: int
    """Channels that NCCL's communicator opens: twice those that its graph search finds."""
    channel_gb_per_s: float
    """Bandwidth of each channel."""
    sockets: bool = False
    """Whether threads of NCCL move data between nodes over TCP."""
    pairs_gb_per_s: float = float("inf")
    """Bandwidth of one GPU to the others of a single node while all send to all, if links that they
    share set a limit."""
    racks: RackShares = NO_RACKS
    """What the links between racks leave of the NICs."""
    multicast: MulticastFigures | None = None
    """None if NVSwitches cannot reduce and multicast for the communicator."""
    summing: SummingFigures | None = None
    """None if the network cannot sum for the communicator, or the model does not know how."""
    uses_summing: bool = False
    """Whether NCCL_COLLNET_ENABLE lets NCCL use it, which it does not by itself."""

    @property
    def graph_channels(self) -> int:
        """Channels as NCCL's graph search counts them, before the communicator doubles them."""
        return max(1, self.channels // 2)

    @property
    def speed(self) -> tuple[float, float]:
        """Key of an order by the bandwidths between and inside nodes, the slowest first."""
        return self.racks.ring * self.nic_gb_per_s, self.intra_gb_per_s

    @property
    def usable_gb_per_s(self) -> float:
        """Share of `intra_gb_per_s` that NCCL plans with."""
        return self.intra_gb_per_s * (_NVLINK_SHARE if self.fabric is Fabric.NVLINK else 1.0)


@lru_cache(maxsize=8)
def machine_figures(topology: Topology) -> MachineFigures:
    """Figures of a valid topology, computed once: every key of a search asks for them."""
    shape = communicator_shape(topology)
    fabric, intra = _intra(topology)
    nics, nic_gb_per_s, latency_us = _network(topology) if shape.nodes > 1 else (0, 0.0, 0.0)
    generation = _generation(topology.gpus[0])
    figures = figures_of(
        shape,
        fabric,
        generation,
        intra,
        nics,
        nic_gb_per_s,
        latency_us,
        sockets=shape.nodes > 1 and uses_sockets(topology),
        multicasts=_multicasts(topology),
        sums=all(nic.network_sums for nic in topology.nics),
        switched=_is_switched(topology),
    )
    if shape.nodes == 1:
        return replace(figures, pairs_gb_per_s=_pairs_gb_per_s(topology))
    return replace(figures, racks=rack_shares(topology, nic_gb_per_s))


def uses_sockets(topology: Topology) -> bool:
    """Whether the NICs are certainly no RDMA devices; NCCL uses these where it finds one."""
    names = [nic.os_name for nic in topology.nics]
    return all(names) and not any(name.startswith(_RDMA_DEVICES) for name in names)


def figures_of(
    shape: Shape,
    fabric: Fabric,
    generation: Generation,
    intra_gb_per_s: float,
    nics_per_node: int = 0,
    nic_gb_per_s: float = 0.0,
    network_latency_us: float = 0.0,
    *,
    sockets: bool = False,
    multicasts: bool = False,
    sums: bool = False,
    switched: bool = False,
) -> MachineFigures:
    """Figures of a machine described by its data sheet; the channels follow from them.

    `multicasts`: whether its GPUs offer multicast through NVSwitches, which NCCL uses from Hopper
    on. `sums`: whether switches of the network sum; `switched`: whether GPUs have NVSwitches.
    """
    usable = intra_gb_per_s * (_NVLINK_SHARE if fabric is Fabric.NVLINK else 1.0)
    modern = generation in {Generation.HOPPER, Generation.BLACKWELL}
    speeds = _NETWORK_SPEEDS_SM90 if modern else _NETWORK_SPEEDS
    if shape.nodes == 1:
        graphs, speed = _graph_channels(usable, _SPEEDS_SM90 if modern else _SPEEDS)
    else:
        graphs, speed = _network_channels(usable, nics_per_node, nic_gb_per_s, speeds)
    channels = min(2 * graphs, _MOST_CHANNELS)
    multicast = summing = None
    if multicasts:
        multicast = _multicast_figures(shape, generation, usable, nics_per_node, nic_gb_per_s)
    if sums and multicast is None:  # NVLS across nodes, which would be another choice, is unknown.
        nics = nics_per_node if switched else 0
        summing = _summing_figures(shape, usable, nics, nic_gb_per_s, speeds)
    return MachineFigures(
        shape=shape,
        fabric=fabric,
        generation=generation,
        intra_gb_per_s=intra_gb_per_s,
        nics_per_node=nics_per_node,
        nic_gb_per_s=nic_gb_per_s,
        network_latency_us=network_latency_us,
        channels=channels,
        channel_gb_per_s=graphs * speed / channels,
        sockets=sockets,
        multicast=multicast,
        summing=summing,
    )


def communicator_shape(topology: Topology) -> Shape:
    """Shape of a communicator over all GPUs of the topology."""
    return Shape(len(topology.gpus), topology.node_count, topology.ranks_per_node)


def _multicasts(topology: Topology) -> bool:
    """Whether all GPUs have multicast: those behind NVSwitches, unless they are known to lack it.

    A file of NCCL's says nothing of it, and NCCL asks the driver.
    """
    return _is_switched(topology) and not any(gpu.lacks_multicast for gpu in topology.gpus)


def _is_switched(topology: Topology) -> bool:
    switched = {d.node for d in topology.devices if d.kind is DeviceKind.NVSWITCH}
    return all(gpu.node in switched for gpu in topology.gpus)


def _generation(gpu: Device) -> Generation:
    capability = gpu.compute_capability
    if capability >= 100 and not gfx_name(capability):
        return Generation.BLACKWELL
    if capability == 90:
        return Generation.HOPPER
    return Generation.VOLTA if 0 < capability < 80 else Generation.AMPERE


def _intra(topology: Topology) -> tuple[Fabric, float]:
    """Link type, and GB/s from the slowest GPU to the others of its node."""
    direct = {LinkKind.NVLINK, LinkKind.XGMI, LinkKind.C2C}
    fabric_egress = {
        gpu.name: sum(
            link.bandwidth_gb_per_s
            for link in topology.links_from[gpu.name]
            if link.kind in direct
            and topology.device[link.dst].kind in {DeviceKind.GPU, DeviceKind.NVSWITCH}
        )
        for gpu in topology.gpus
    }
    if min(fabric_egress.values()) > 0 and _fabric_connects(topology, direct):
        return Fabric.NVLINK, min(fabric_egress.values())
    return Fabric.PCI, min(_ring_step_gb_per_s(topology))


def _fabric_connects(topology: Topology, kinds: set[LinkKind]) -> bool:
    """Whether GPUs of a node reach each other over such links alone, other GPUs as relays."""
    neighbours: dict[str, list[str]] = {}
    for link in topology.links:
        if link.kind in kinds:
            neighbours.setdefault(link.src, []).append(link.dst)
    first = {gpu.node: gpu.name for gpu in reversed(topology.gpus)}
    reached: set[str] = set()
    frontier = list(first.values())
    while frontier:
        name = frontier.pop()
        if name not in reached:
            reached.add(name)
            frontier.extend(neighbours.get(name, ()))
    return all(gpu.name in reached for gpu in topology.gpus)


def _ring_step_gb_per_s(topology: Topology) -> list[float]:
    """Bandwidth from each GPU to the next one of its node."""
    speeds = []
    for _, names in sorted(_gpus_by_node(topology).items()):
        for name, after in zip(names, names[1:] + names[:1], strict=True):
            path = local_path(topology, name, after) if name != after else None
            if path is not None:
                speeds.append(path.bandwidth_gb_per_s)
    return speeds or [float("inf")]


def _pairs_gb_per_s(topology: Topology) -> float:
    """Bandwidth from each GPU of a node to the others while all send to all, as NCCL connects them.

    NCCL passes nothing on through a GPU here: without NVLink or NVSwitch, a pair uses the host's
    links.
    """
    others = max(1, len(topology.gpus) - 1)
    paths = (local_path(topology, a.name, b.name) for a, b in permutations(topology.gpus, 2))
    users = Counter(link for path in paths if path is not None for link in path.links)
    rates = (link.bandwidth_gb_per_s / (count / others) for link, count in users.items())
    return min(rates, default=float("inf"))


def _network(topology: Topology) -> tuple[int, float, float]:
    """Fewest NICs of a node, GB/s of the slowest NIC, latency of the network in us.

    A NIC that no GPU of its node reaches is not counted: nothing can be sent through it. Ports of
    one card, and NICs below one switch, divide its way to the host.
    """
    gpus = _gpus_by_node(topology)
    network = [link for link in topology.links if link.kind is LinkKind.NETWORK]
    wire = {link.src: link.bandwidth_gb_per_s for link in network}
    latency_us = 2.0 * max(link.latency_us for link in network)
    usable = dict.fromkeys(gpus, 0)
    speeds: list[float] = []
    users: Counter[Link] = Counter()
    for nic in topology.nics:
        if nic.name not in wire:
            continue
        found = (local_path(topology, gpu, nic.name) for gpu in gpus.get(nic.node, ()))
        near = [path for path in found if path is not None and path.bandwidth_gb_per_s > 0.0]
        if not near:
            continue
        speeds.append(min(wire[nic.name], max(path.bandwidth_gb_per_s for path in near)))
        # Whichever GPU sends. NICs of the other socket are not divided: nearer ones carry more.
        ways = set.intersection(*(set(path.links) for path in near))
        users.update(link for link in ways if link.kind is LinkKind.PCIE)
        if nic.node in usable:
            usable[nic.node] += 1
    shared = (link.bandwidth_gb_per_s / count for link, count in users.items())
    return min(usable.values()), min(*speeds, *shared), latency_us


def _gpus_by_node(topology: Topology) -> dict[int, list[str]]:
    """Names of the GPUs of each node, in rank order."""
    found: dict[int, list[str]] = {}
    for gpu in topology.gpus:
        found.setdefault(gpu.node, []).append(gpu.name)
    return found


def _graph_channels(limit_gb_per_s: float, speeds: tuple[float, ...]) -> tuple[int, float]:
    """Channels and their speed as NCCL's graph search would settle on inside a node.

    The ladder's speed that fills most of the limit with at most 16 channels; of equal ones the
    fastest. Fast channels are then doubled, from Hopper on only the fastest or very few.
    """
    best = (1, min(limit_gb_per_s, speeds[-1]))
    for speed in speeds:
        channels = min(_MAX_CHANNELS, int(limit_gb_per_s // speed))
        if channels * speed > 1.001 * best[0] * best[1]:
            best = (channels, speed)
    channels, speed = best
    doubled = speed >= _DOUBLED_GB_PER_S
    if speeds is _SPEEDS_SM90:
        doubled &= speed >= 2 * _DOUBLED_GB_PER_S or channels <= 4
    return (2 * channels, speed / 2) if doubled else best


def _network_channels(
    usable_gb_per_s: float, nics: int, nic_gb_per_s: float, speeds: tuple[float, ...]
) -> tuple[int, float]:
    """The same between nodes, where every channel enters and leaves a node over one NIC."""
    limit = min(nic_gb_per_s, usable_gb_per_s)
    speed = _highest(speeds, limit)
    each = max(1, int(nic_gb_per_s // speed))
    # A single GPU of a node has nothing to send inside: no limit, which no integer holds.
    inside = min(usable_gb_per_s, nics * nic_gb_per_s)
    return max(1, min(_MAX_CHANNELS, nics * each, int(inside // speed))), speed


_MULTICAST_SPEEDS = {
    Generation.HOPPER: (_SPEEDS_SM90, _NETWORK_SPEEDS_SM90),
    Generation.BLACKWELL: (
        (90.0, 80.0, 70.0, 60.0, 50.0, 45.0, 40.0, 30.0, 24.0, 20.0, 19.0, 18.0),
        (96.0, 86.0, 80.0, 48.0, 45.1, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0),
    ),
}
"""Speeds that the search tries inside nodes and between them, GB/s."""
MOST_HEADS = 32
"""NCCL_MAX_NVLS_ARITY."""


def _multicast_figures(
    shape: Shape, generation: Generation, usable_gb_per_s: float, nics: int, nic_gb_per_s: float
) -> MulticastFigures | None:
    """The graph of NVLS, as NCCL 2.30 finds it (src/graph/search.cc); None if it finds none.

    On one node every GPU is a head, on several each that has a NIC. A GPU's links carry the share
    of each head, and a head's own once more.
    """
    speeds = _MULTICAST_SPEEDS.get(generation)
    heads = min(MOST_HEADS, shape.ranks_per_node)
    if shape.nodes > 1:
        heads = min(heads, nics)
    if speeds is None or heads < 2:
        return None
    limit = usable_gb_per_s / (heads + 1)
    if shape.nodes == 1:
        return MulticastFigures(heads, _highest(speeds[0], limit), 0.0)
    return MulticastFigures(
        heads, _highest(speeds[1], min(limit, nic_gb_per_s)), _highest(speeds[1], nic_gb_per_s)
    )


MOST_SUMMING_RANKS = 8
"""GPUs of a node with which NCCL runs CollNet, NCCL_MAX_DIRECT_ARITY + 1."""


def _summing_figures(
    shape: Shape,
    usable_gb_per_s: float,
    nics: int,
    nic_gb_per_s: float,
    speeds: tuple[float, ...],
) -> SummingFigures | None:
    """The graph of CollNet, as NCCL 2.30 finds it (src/graph/search.cc); None if it finds none.

    Each GPU with a NIC is a head. Its links carry what the others send it and, once more, what it
    sends them; inside, the search goes on to twice the NIC's speed.
    """
    if shape.nodes < 2 or not 0 < shape.ranks_per_node <= MOST_SUMMING_RANKS:
        return None
    heads = min(nics, shape.ranks_per_node)
    if heads == 0:
        return SummingFigures(0, 0.0, 0.0)
    limit = usable_gb_per_s / 2 if shape.ranks_per_node > 1 else nic_gb_per_s * 2
    between = _highest(speeds, min(nic_gb_per_s, limit))
    faster = [speed for speed in reversed(speeds) if between < speed <= limit]
    inside = next((speed for speed in faster if speed >= 2 * between), max(faster, default=between))
    return SummingFigures(heads, inside, between)


def _highest(speeds: tuple[float, ...], limit_gb_per_s: float) -> float:
    """Return the highest of descending speeds within a limit; the limit if none is."""
    return next((speed for speed in speeds if speed <= limit_gb_per_s), limit_gb_per_s)


MULTIPROCESSORS = {
    Generation.VOLTA: 80,
    Generation.AMPERE: 108,
    Generation.HOPPER: 132,
    Generation.BLACKWELL: 148,
}
"""Multiprocessors of V100, A100, H100 SXM and B200, by NVIDIA's architecture white papers."""


def time_beside_us(
    alone_us: float, blocks: int, computation_us: float, multiprocessors: int
) -> float:
    """Return the time in us until a call and the computation beside it have both ended.

    A thread block of a collective keeps its multiprocessor while the call lasts, and the
    computation has the others. The call itself is taken to be as fast as alone: what both share of
    memory and caches is left out.

    Args:
        alone_us: Time of the call alone.
        blocks: Thread blocks of the call.
        computation_us: Time of the computation alone.
        multiprocessors: Multiprocessors of the GPU.
    """
    taken = min(1.0, blocks / multiprocessors)
    if computation_us <= alone_us * (1.0 - taken):
        return alone_us
    return computation_us + alone_us * taken
