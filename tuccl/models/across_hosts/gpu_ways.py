"""The ways between the GPUs of a machine, and how transfers share them.

Inside a node two GPUs use the links that peer memory is reached by. Between nodes a message takes
the NICs that NCCL gives it (2.28 to 2.30, `ncclTopoGetNetDev` in src/graph/search.cc): with RDMA
those of the GPU with the receiver's place in the sender's node, to whose near GPU the data goes
over NVLink (PXN); the sender's own where there is no such GPU, no NVLink to it, or where threads
move data over TCP. If the NICs state different rates, all GPUs use the fastest ones, which NCCL
puts before near ones (`ncclTopoGetLocal` in src/graph/topo.cc). A GPU with several NICs to itself
spreads each message over them, by channels that follow one another, and each communicator does so
alike: lanes take no other NICs. What several ways have in common is a port; ways that transfers use
at the same time share their ports fairly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TypeVar

from probes.topology.graph import Device, Topology
from probes.topology.paths import Proximity, local_path, pcie_distance
from sketches.binding import fast_nics, nearest_nics, ranks_and_nics_by_node
from sketches.intra_node import intra_node_wires
from sketches.sketch import Binding, EdgeKind, Port, Sketch
from sketches.symmetry import find_symmetries
from sketches.transformation import network_wires
from sketches.wires import Wire, assemble
from tuccl.models.figures import machine_figures

Pair = tuple[int, int]
"""Sending and receiving rank."""
Way = tuple[Port, ...]
"""Everything that a transfer passes; the first is the pair's own, as narrow as its narrowest link.
"""
Transfer = TypeVar("Transfer", bound=Hashable)


class GpuWays:
    """The ways of one machine."""

    def __init__(self, topology: Topology) -> None:
        """Take a valid topology."""
        self._topology = topology
        self._across: dict[Pair, tuple[Way, ...]] = {}

    @cached_property
    def inside(self) -> Mapping[Pair, Way]:
        """Ways between the GPUs of each node."""
        return {_pair(wire): _way(wire) for wire in self._inside_wires}

    def across(self, pairs: Iterable[Pair]) -> Mapping[Pair, tuple[Way, ...]]:
        """Return the ways of messages between ranks of different nodes, each for an equal part."""
        missing = sorted(set(pairs) - self._across.keys())
        found: dict[Pair, list[Way]] = {pair: [] for pair in missing}
        most = max((len(nics) for nics in self._nics.values()), default=1)
        for channel in range(most if missing else 0):
            nic = {rank: nics[channel % len(nics)] for rank, nics in self._nics.items()}
            senders = {
                (src, dst): self._sender(src, dst, nic)
                for src, dst in missing
                if channel < max(1, len(self._nics.get(src, ())), len(self._nics.get(dst, ())))
            }
            connections = dict.fromkeys(
                (nic[sender], nic[dst])
                for (_, dst), sender in senders.items()
                if sender in nic and dst in nic
            )
            bindings = [Binding(rank, name, "") for rank, name in nic.items()]
            wires = network_wires(self._topology, bindings, connections)
            by_pair = {_pair(wire): wire for wire in wires}
            for pair, sender in senders.items():
                found[pair].append(self._way(pair, sender, by_pair.get((sender, pair[1])), channel))
        self._across |= {pair: tuple(ways) for pair, ways in found.items()}
        return self._across

    def across_us_per_byte(self, amounts: Mapping[Pair, int]) -> float:
        """Return the time until all messages between nodes have passed that begin at once.

        Args:
            amounts: Chunks of each; the time is for chunks of one byte.
        """
        ways = self.across(amounts)
        parts = {(pair, n): way for pair in amounts for n, way in enumerate(ways[pair])}
        return shared_us_per_byte(
            {part: amounts[part[0]] / len(ways[part[0]]) for part in parts}, parts
        )

    def _sender(self, src: int, dst: int, nic: Mapping[int, str]) -> int:
        """Return the GPU from whose memory a NIC of its node sends a message."""
        if self._are_sockets:
            return src
        node, place = self._topology.node_of_rank, self._place
        alike = self._ranks_at.get((node[src], place[dst]))
        near = None if alike is None else self._near.get(nic.get(alike, ""))
        return near if near is not None and (src, near) in self._nvlinked else src

    def _way(self, pair: Pair, sender: int, network: Wire | None, channel: int) -> Way:
        name = f"{pair[0]}>{pair[1]}" + (f", channel {channel}" if channel else "")
        if network is None:
            # NICs that do not reach each other: NCCL goes over others, whose number is their share.
            return (Port(name, self._share_gb_per_s),)
        before = () if sender == pair[0] else self.inside[pair[0], sender]
        return (Port(name, network.edge.bandwidth_gb_per_s), *before, *network.ports)

    @cached_property
    def _are_sockets(self) -> bool:
        return machine_figures(self._topology).sockets

    @cached_property
    def _inside_wires(self) -> tuple[Wire, ...]:
        return intra_node_wires(self._topology, every_pcie_pair=True)[0]

    @cached_property
    def _nvlinked(self) -> frozenset[Pair]:
        wires = (wire for wire in self._inside_wires if wire.edge.kind is EdgeKind.NVLINK)
        return frozenset(map(_pair, wires))

    @cached_property
    def _nics(self) -> Mapping[int, tuple[str, ...]]:
        """The NICs of each rank: one that it may share, or several."""
        found = {}
        for ranks, nics in ranks_and_nics_by_node(self._topology):
            stated = self._stated_fastest(ranks, fast_nics(self._topology, nics)) if nics else []
            near = nearest_nics(self._topology, ranks, stated) if nics else {}
            for names, group in near.items():
                nearest = Counter(self._proximity(rank, names[0]) for rank in group)
                each = -(-len(names) // nearest[min(nearest)])
                for position, rank in enumerate(group):
                    first = position * len(names) // len(group)
                    found[rank] = tuple(names[(first + i) % len(names)] for i in range(each))
        return found

    def _stated_fastest(self, ranks: Sequence[int], nics: Sequence[Device]) -> list[Device]:
        """Return the NICs with the highest stated rate, as far as their way to a GPU carries it."""

        def rate(nic: Device) -> float:
            gpus = (self._topology.gpus[rank].name for rank in ranks)
            paths = (local_path(self._topology, gpu, nic.name) for gpu in gpus)
            widest = max((path.bandwidth_gb_per_s for path in paths if path), default=0.0)
            return min(nic.line_rate_gb_per_s, widest)

        rates = [rate(nic) for nic in nics]
        return [nic for nic, own in zip(nics, rates, strict=True) if own == max(rates)]

    @cached_property
    def _near(self) -> Mapping[str, int]:
        """The first rank under the same PCIe switch as each NIC that it uses."""
        found: dict[str, int] = {}
        for rank, nics in sorted(self._nics.items()):
            for nic in nics:
                if self._proximity(rank, nic) is Proximity.SWITCH:
                    found.setdefault(nic, rank)
        return found

    def _proximity(self, rank: int, nic: str) -> Proximity:
        return pcie_distance(self._topology, self._topology.gpus[rank].name, nic)

    @cached_property
    def _place(self) -> tuple[int, ...]:
        """The place of each rank in its node."""
        seen: Counter[int] = Counter()
        places = []
        for node in self._topology.node_of_rank:
            places.append(seen[node])
            seen[node] += 1
        return tuple(places)

    @cached_property
    def _ranks_at(self) -> Mapping[tuple[int, int], int]:
        """The rank at each place of each node."""
        keys = zip(self._topology.node_of_rank, self._place, strict=True)
        return {key: rank for rank, key in enumerate(keys)}

    @cached_property
    def _share_gb_per_s(self) -> float:
        machine = machine_figures(self._topology)
        largest = max(Counter(self._topology.node_of_rank).values())
        return min(1.0, machine.nics_per_node / largest) * machine.nic_gb_per_s


@lru_cache(maxsize=8)
def gpu_ways(topology: Topology) -> GpuWays:
    """Return the ways of a machine, found once."""
    return GpuWays(topology)


def with_ways(sketch: Sketch, ways: GpuWays) -> Sketch:
    """Return a sketch whose edges between nodes take the NICs that NCCL gives their messages.

    A sketch binds each GPU to a NIC. NCCL chooses by receiver where NVLink leads to the NIC at its
    place, so that a schedule for other NICs would be told at a time that it does not run at. A
    sketch is returned as it is if messages take several NICs at once.
    """
    across = ways.across(
        (edge.src, edge.dst) for edge in sketch.edges if edge.kind is EdgeKind.NETWORK
    )
    wires = []
    for edge in sketch.edges:
        ports = tuple(sketch.port[name] for name in edge.ports)
        if edge.kind is EdgeKind.NETWORK:
            (own, *ports_of_way), *others = across[edge.src, edge.dst]
            if others:
                return sketch
            ports = tuple(ports_of_way)
            edge = replace(  # noqa: PLW2901 - the same edge over other ports
                edge,
                bandwidth_gb_per_s=own.bandwidth_gb_per_s,
                ports=tuple(port.name for port in ports),
            )
        wires.append(Wire(edge, ports))
    edges, kept = assemble(wires)
    routed = replace(sketch, edges=edges, ports=kept)
    return replace(routed, symmetries=find_symmetries(routed))


def shared_us_per_byte(amounts: Mapping[Transfer, float], ways: Mapping[Transfer, Way]) -> float:
    """Return the time until all transfers end that begin at once and share ports fairly.

    Args:
        amounts: Chunks of each transfer; the time is for chunks of one byte.
        ways: The way of each transfer.
    """
    left = {each: float(amount) for each, amount in amounts.items() if amount}
    passed_us = 0.0
    while left:
        rates = _fair_rates(left, ways)
        ends_us = {each: amount / rates[each] for each, amount in left.items()}
        first_us = min(ends_us.values())
        passed_us += first_us
        left = {
            each: amount - first_us * rates[each]
            for each, amount in left.items()
            if ends_us[each] > first_us * (1.0 + 1e-9)
        }
    return passed_us


def _fair_rates(
    transfers: Iterable[Transfer], ways: Mapping[Transfer, Way]
) -> dict[Transfer, float]:
    """Return max-min fair rates in bytes per microsecond."""
    crossing: dict[str, list[Transfer]] = {}
    free: dict[str, float] = {}
    for transfer in transfers:
        for port in ways[transfer]:
            crossing.setdefault(port.name, []).append(transfer)
            free[port.name] = 1e3 * port.bandwidth_gb_per_s
    waiting = {name: len(users) for name, users in crossing.items()}
    rates: dict[Transfer, float] = {}
    while waiting:
        tightest = min(waiting, key=lambda name: free[name] / waiting[name])
        rate = free[tightest] / waiting[tightest]
        for transfer in crossing[tightest]:
            if transfer in rates:
                continue
            rates[transfer] = rate
            for port in ways[transfer]:
                free[port.name] -= rate
                waiting[port.name] -= 1
        waiting = {name: count for name, count in waiting.items() if count}
    return rates


def _pair(wire: Wire) -> Pair:
    return wire.edge.src, wire.edge.dst


def _way(wire: Wire) -> Way:
    edge = wire.edge
    return (Port(f"{edge.src}>{edge.dst}", edge.bandwidth_gb_per_s), *wire.ports)
