"""A simulated network that answers measurements, with faults: `SimulatedNetwork`.

It shows the findings and cost of a campaign at any scale. It is seeded: equal measurements in equal
order give equal results.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from probes.network.ports import Failure, NetworkPort, PairResult, PortPair
from probes.topology.replicate import NetworkLayout


@dataclass(frozen=True, slots=True)
class SimulatedFaults:
    """Faults by (host, NIC)."""

    slow_ports: frozenset[tuple[int, int]] = frozenset()
    """Ports that are slow in both directions."""
    slow_receivers: frozenset[tuple[int, int]] = frozenset()
    """Ports that are slow only when they receive."""
    dead_ports: frozenset[tuple[int, int]] = frozenset()
    slow_pairs: frozenset[PortPair] = frozenset()
    """Pairs that are slow in both directions, by index of the ports."""
    late_ports: frozenset[tuple[int, int]] = frozenset()
    """Ports with 30 us of additional latency."""
    busy_ports: frozenset[tuple[int, int]] = frozenset()
    """Ports that are slow during the first `busy_rounds` rounds."""
    busy_rounds: int = 0
    slow_share: float = 0.5
    """Bandwidth limit of slow ports and pairs, as a share of `same_rack_gb_per_s`."""


@dataclass
class SimulatedNetwork:
    """Hosts with one NIC per rail, in racks of 16 to 32 hosts (or all unknown)."""

    nodes: int
    nics: int
    seed: int = 0
    layout: NetworkLayout = NetworkLayout.RAILS
    has_racks: bool = True
    line_rate_gb_per_s: float = 50.0
    same_rack_gb_per_s: float = 48.9
    other_rack_gb_per_s: float = 48.9
    same_rack_latency_us: float = 3.0
    other_rack_latency_us: float = 5.0
    noise: float = 0.03
    """Relative standard deviation of every figure."""
    nics_per_uplink: int = 1
    """NICs of a host that share a PCIe link."""
    uplink_gb_per_s: float = math.inf
    """Bandwidth of that link in either direction."""
    rack_gb_per_s: float = math.inf
    """Bandwidth between a rack's leaf switch and the spine, in either direction."""
    faults: SimulatedFaults = field(default_factory=SimulatedFaults)

    def __post_init__(self) -> None:
        """Create the ports."""
        self.random = random.Random(self.seed)
        racks: list[str] = []
        while len(racks) < self.nodes:
            racks += [f"rack{len(set(racks)):03d}"] * self.random.randint(16, 32)
        self.ports = tuple(
            self._port(host, nic, racks[host] if self.has_racks else "")
            for host in range(self.nodes)
            for nic in range(self.nics)
        )
        self.measurements = [0] * len(self.ports)
        """Number of measurements by port."""
        self.rounds = 0

    def _port(self, host: int, nic: int, rack: str) -> NetworkPort:
        return NetworkPort(
            host=host,
            host_name=f"node{host:04d}",
            nic=nic,
            os_name=f"mlx5_{nic}",
            interface=f"eth{nic}",
            rdma_device=f"mlx5_{nic}",
            rdma_port=1,
            address=f"10.{nic}.{host // 250}.{host % 250 + 1}",
            prefix_length=16 if self.layout is NetworkLayout.RAILS else 8,
            line_rate_gb_per_s=self.line_rate_gb_per_s,
            rack=rack,
        )

    def measure(self, pairs: Sequence[PortPair]) -> list[PairResult]:
        """Measure one round.

        Raises:
            ValueError: a port appears twice, which a real measurement would not notice.
        """
        used = [index for pair in pairs for index in (pair.client, pair.server)]
        if len(used) != len(set(used)):
            raise ValueError("a port is used twice in one round")
        for index in used:
            self.measurements[index] += 1
        self.rounds += 1
        senders = Counter(self._uplink(pair.client) for pair in pairs)
        receivers = Counter(self._uplink(pair.server) for pair in pairs)
        leaving = Counter(self._leaf(pair.client) for pair in pairs if self._crosses(pair))
        entering = Counter(self._leaf(pair.server) for pair in pairs if self._crosses(pair))
        return [
            self._result(
                pair,
                max(senders[self._uplink(pair.client)], receivers[self._uplink(pair.server)]),
                max(leaving[self._leaf(pair.client)], entering[self._leaf(pair.server)])
                if self._crosses(pair)
                else 0,
            )
            for pair in pairs
        ]

    def _crosses(self, pair: PortPair) -> bool:
        return self.ports[pair.client].rack != self.ports[pair.server].rack

    def _leaf(self, index: int) -> tuple[str, int]:
        port = self.ports[index]
        return port.rack, port.nic if self.layout is NetworkLayout.RAILS else 0

    def uplinks(self) -> tuple[tuple[int, ...], ...]:
        """Indices of ports that share an uplink, if it is too narrow for them."""
        if self.nics_per_uplink * self.line_rate_gb_per_s <= self.uplink_gb_per_s:
            return ()
        groups: dict[tuple[int, int], list[int]] = {}
        for index in range(len(self.ports)):
            groups.setdefault(self._uplink(index), []).append(index)
        return tuple(tuple(indices) for indices in groups.values() if len(indices) > 1)

    def _uplink(self, index: int) -> tuple[int, int]:
        return self.ports[index].host, self.ports[index].nic // self.nics_per_uplink

    def _result(self, pair: PortPair, sharing: int, crossing: int) -> PairResult:
        """Result while so many pairs use the busier of its uplinks, and of its racks' links."""
        client, server = self.ports[pair.client], self.ports[pair.server]
        ends = {(client.host, client.nic), (server.host, server.nic)}
        disconnected = self.layout is NetworkLayout.RAILS and client.nic != server.nic
        if disconnected or ends & self.faults.dead_ports:
            return PairResult(
                pair,
                bandwidth_by="ib_write_bw",
                latency_by="ib_write_lat",
                bandwidth_failure=Failure.UNREACHABLE,
                latency_failure=Failure.UNREACHABLE,
            )
        same_rack = client.rack == server.rack
        bandwidth = self.same_rack_gb_per_s if same_rack else self.other_rack_gb_per_s
        latency = self.same_rack_latency_us if same_rack else self.other_rack_latency_us
        if self._is_slow(pair, ends):
            bandwidth = min(bandwidth, self.same_rack_gb_per_s * self.faults.slow_share)
        bandwidth = min(bandwidth, self.uplink_gb_per_s / sharing)
        if crossing:
            bandwidth = min(bandwidth, self.rack_gb_per_s / crossing)
        if ends & self.faults.late_ports:
            latency += 30.0
        return PairResult(
            pair,
            bandwidth_gb_per_s=bandwidth * self._noise(),
            latency_us=latency * self._noise(),
            bandwidth_by="ib_write_bw",
            latency_by="ib_write_lat",
        )

    def _is_slow(self, pair: PortPair, ends: set[tuple[int, int]]) -> bool:
        server = self.ports[pair.server]
        busy = self.faults.busy_ports if self.rounds <= self.faults.busy_rounds else frozenset()
        return bool(
            ends & (self.faults.slow_ports | busy)
            or (server.host, server.nic) in self.faults.slow_receivers
            or {pair, PortPair(pair.server, pair.client)} & self.faults.slow_pairs
        )

    def _noise(self) -> float:
        return max(0.5, self.random.gauss(1.0, self.noise))
