"""Ports of small clusters, and networks whose results a test defines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

from probes.network.ports import Failure, NetworkPort, PairResult, PortPair
from probes.topology.graph import Device, DeviceKind, LinkKind, Topology

Answer = Callable[[NetworkPort, NetworkPort], "tuple[float, float] | None"]


class PortFields(TypedDict, total=False):
    """Fields of a port that a test may set."""

    rdma_device: str
    rdma_port: int
    address: str
    prefix_length: int
    line_rate_gb_per_s: float
    rack: str
    management_address: str
    rdma_subnet: str
    other_addresses: tuple[str, ...]


def port(host: int, nic: int = 0, **fields: Unpack[PortFields]) -> NetworkPort:
    """NIC `nic` of host `host` in subnet 10.{nic}.0.0/16, 50 GB/s."""
    usual = NetworkPort(
        host=host,
        host_name=f"node{host}",
        nic=nic,
        os_name=f"mlx5_{nic}",
        address=f"10.{nic}.{host // 250}.{host % 250 + 1}",
        prefix_length=16,
        line_rate_gb_per_s=50.0,
    )
    return replace(usual, **fields)


def cluster(hosts: int, nics: int = 1, **fields: Unpack[PortFields]) -> tuple[NetworkPort, ...]:
    return tuple(port(host, nic, **fields) for host in range(hosts) for nic in range(nics))


def answering(
    ports: Sequence[NetworkPort], answer: Answer
) -> Callable[[Sequence[PortPair]], list[PairResult]]:
    """Return a measurement by `answer(client, server)`: GB/s and us, or None for no reply."""

    def result(pair: PortPair) -> PairResult:
        figures = answer(ports[pair.client], ports[pair.server])
        if figures is None:
            return PairResult(
                pair,
                bandwidth_by="iperf3",
                latency_by="ping",
                bandwidth_failure=Failure.TIMEOUT,
                latency_failure=Failure.UNREACHABLE,
                detail="100% packet loss",
            )
        return PairResult(pair, *figures, bandwidth_by="iperf3", latency_by="ping")

    return lambda pairs: [result(pair) for pair in pairs]


def same_subnet(client: NetworkPort, server: NetworkPort) -> tuple[float, float] | None:
    """Equal figures inside each rail, none between rails."""
    return (48.0, 4.0) if client.nic == server.nic else None


def without_network(cluster: Topology) -> Topology:
    """Return the hosts of a cluster without its network."""
    return replace(
        cluster,
        devices=tuple(d for d in cluster.devices if d.kind is not DeviceKind.NETWORK_SWITCH),
        links=tuple(link for link in cluster.links if link.kind is not LinkKind.NETWORK),
    )


def bare_hosts(ports: Sequence[NetworkPort]) -> Topology:
    """Return hosts with NICs only."""
    nics = (
        Device(
            f"n{p.host}/nic{p.nic}",
            DeviceKind.NIC,
            p.host,
            p.nic,
            line_rate_gb_per_s=p.line_rate_gb_per_s,
        )
        for p in ports
    )
    return Topology("hosts", tuple(nics), ())
