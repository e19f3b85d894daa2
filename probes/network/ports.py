"""The measurable ports of the network, and what one measurement of a pair of them gave."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from probes.topology.devices import Provenance


@dataclass(frozen=True, slots=True, order=True)
class PortPair:
    """Two ports by their indices in the list of ports; `client` sends to `server`."""

    client: int
    server: int


class Failure(StrEnum):
    """Cause of a missing figure."""

    UNREACHABLE = "unreachable"
    """There was no answer: the host or the path to it is down."""
    FILTERED = "filtered"
    """The probe is refused, or dropped though other traffic passes."""
    TIMEOUT = "timeout"
    """The tool did not end in time."""
    TOOL_MISSING = "tool missing"
    UNREADABLE = "unreadable"
    """The tool's output is cut or of an unknown form."""
    HOST_LOST = "host lost"
    """The measuring host is gone, which says nothing about the path between the ports."""


@dataclass(frozen=True, slots=True)
class PairResult:
    """Result of one measurement of a pair; a figure is None exactly when its failure is set."""

    pair: PortPair
    bandwidth_gb_per_s: float | None = None
    """Bandwidth from client to server."""
    latency_us: float | None = None
    """One-way latency: half of a round trip."""
    bandwidth_by: str = ""
    """The bandwidth's tool: `ib_write_bw`, `iperf3`."""
    latency_by: str = ""
    """The latency's tool: `ib_write_lat`, `ping`."""
    bandwidth_failure: Failure | None = None
    latency_failure: Failure | None = None
    detail: str = ""
    """The tool's message about a failure, one line."""


@dataclass(frozen=True, slots=True)
class NetworkPort:
    """A NIC's port on a host, with its addresses."""

    host: int
    """Index of the host in the cluster."""
    host_name: str
    nic: int
    """Index of the NIC on its host, as in the topology (`n{host}/nic{nic}`)."""
    os_name: str
    """The operating system's name: `mlx5_0`, `eth0`."""
    interface: str = ""
    """Network interface with the address; empty without one."""
    rdma_device: str = ""
    rdma_port: int = 0
    address: str = ""
    """IP address; a port without one can only be measured by RDMA."""
    prefix_length: int = 0
    """Prefix length of the address's subnet, in bits."""
    line_rate_gb_per_s: float = 0.0
    """Line rate per direction; 0 when unknown."""
    line_rate_provenance: Provenance = Provenance.SYSFS
    """Origin of it."""
    rack: str = ""
    """Rack or leaf switch, from a rack map, LLDP, Slurm or ibnetdiscover; empty when unknown."""
    management_address: str = ""
    """RDMA ports: IP address by which other hosts reach this host, over any interface."""
    rdma_subnet: str = ""
    """RDMA ports: subnet of the GIDs, `InfiniBand fe80::/64` or `RoCE fe80::/64`; else empty."""
    other_addresses: tuple[str, ...] = ()
    """Further addresses of the interface, as `10.0.0.7/24`, until one is selected."""

    @property
    def label(self) -> str:
        """Name for messages: `node7/mlx5_3`."""
        return f"{self.host_name}/{self.os_name}"

    @property
    def is_rdma_only(self) -> bool:
        """Whether it has no address, but RDMA can measure it over the management address."""
        return not self.address and bool(self.management_address and self.rdma_subnet)
