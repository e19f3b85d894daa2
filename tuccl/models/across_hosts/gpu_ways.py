"""The ways between the GPUs of a machine, and how transfers share them.

Inside a node two GPUs use the links that peer memory is reached by. Between nodes the messages of a
rank take the NIC that it is bound to. What several ways have in common is a port; ways that
transfers use at the same time share their ports fairly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache

from probes.topology.graph import Topology
from sketches.binding import bind_gpus
from sketches.intra_node import intra_node_wires
from sketches.sketch import Binding, Port
from sketches.transformation import network_wires
from sketches.wires import Wire
from tuccl.models.figures import machine_figures

Pair = tuple[int, int]
"""Sending and receiving rank."""
Way = tuple[Port, ...]
"""Everything that a transfer passes; the first is the pair's own, as narrow as its narrowest link.
"""


class GpuWays:
    """The ways of one machine."""

    def __init__(self, topology: Topology) -> None:
        """Take a valid topology."""
        self._topology = topology
        self._across: dict[Pair, Way] = {}

    @cached_property
    def inside(self) -> Mapping[Pair, Way]:
        """Ways between the GPUs of each node."""
        wires, _ = intra_node_wires(self._topology, every_pcie_pair=True)
        return {_pair(wire): _way(wire) for wire in wires}

    def across(self, pairs: Iterable[Pair]) -> Mapping[Pair, Way]:
        """Return the ways between ranks of different nodes."""
        missing = sorted(set(pairs) - self._across.keys())
        if missing:
            nics = [(self._nic_of.get(src), self._nic_of.get(dst)) for src, dst in missing]
            connections = dict.fromkeys((a, b) for a, b in nics if a is not None and b is not None)
            wires = network_wires(self._topology, self._bindings, connections)
            self._across |= {_pair(wire): _way(wire) for wire in wires}
            # NICs that do not reach each other: NCCL goes over others, whose number is their share.
            self._across |= {
                pair: (Port(f"{pair[0]}>{pair[1]}", self._share_gb_per_s),)
                for pair in missing
                if pair not in self._across
            }
        return self._across

    @cached_property
    def _bindings(self) -> tuple[Binding, ...]:
        return bind_gpus(self._topology)[0]

    @cached_property
    def _nic_of(self) -> dict[int, str]:
        return {binding.rank: binding.nic for binding in self._bindings}

    @cached_property
    def _share_gb_per_s(self) -> float:
        machine = machine_figures(self._topology)
        largest = max(Counter(self._topology.node_of_rank).values())
        return min(1.0, machine.nics_per_node / largest) * machine.nic_gb_per_s


@lru_cache(maxsize=8)
def gpu_ways(topology: Topology) -> GpuWays:
    """Return the ways of a machine, found once."""
    return GpuWays(topology)


def shared_us_per_byte(amounts: Mapping[Pair, int], ways: Mapping[Pair, Way]) -> float:
    """Return the time until all transfers end that begin at once and share ports fairly.

    Args:
        amounts: Chunks of each transfer; the time is for chunks of one byte.
        ways: The way of each transfer.
    """
    left = {pair: float(amount) for pair, amount in amounts.items() if amount}
    passed_us = 0.0
    while left:
        rates = _fair_rates(left, ways)
        ends_us = {pair: amount / rates[pair] for pair, amount in left.items()}
        first_us = min(ends_us.values())
        passed_us += first_us
        left = {
            pair: amount - first_us * rates[pair]
            for pair, amount in left.items()
            if ends_us[pair] > first_us * (1.0 + 1e-9)
        }
    return passed_us


def _fair_rates(pairs: Iterable[Pair], ways: Mapping[Pair, Way]) -> dict[Pair, float]:
    """Return max-min fair rates in bytes per microsecond."""
    crossing: dict[str, list[Pair]] = {}
    free: dict[str, float] = {}
    for pair in pairs:
        for port in ways[pair]:
            crossing.setdefault(port.name, []).append(pair)
            free[port.name] = 1e3 * port.bandwidth_gb_per_s
    waiting = {name: len(users) for name, users in crossing.items()}
    rates: dict[Pair, float] = {}
    while waiting:
        tightest = min(waiting, key=lambda name: free[name] / waiting[name])
        rate = free[tightest] / waiting[tightest]
        for pair in crossing[tightest]:
            if pair in rates:
                continue
            rates[pair] = rate
            for port in ways[pair]:
                free[port.name] -= rate
                waiting[port.name] -= 1
        waiting = {name: count for name, count in waiting.items() if count}
    return rates


def _pair(wire: Wire) -> Pair:
    return wire.edge.src, wire.edge.dst


def _way(wire: Wire) -> Way:
    edge = wire.edge
    return (Port(f"{edge.src}>{edge.dst}", edge.bandwidth_gb_per_s), *wire.ports)
