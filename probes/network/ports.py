"""The ends of the network that can be measured: `NetworkPort`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NetworkPort:
    """One NIC port of one host, with the address that reaches it."""

    host: int
    """Index of the host in the cluster."""
    host_name: str
    nic: int
    """Index of the NIC on its host, as in the topology (`n{host}/nic{nic}`)."""
    os_name: str
    """`mlx5_0`, `eth0`."""
    interface: str = ""
    """Network interface that carries the address; empty without one."""
    rdma_device: str = ""
    rdma_port: int = 0
    address: str = ""
    """IP address; empty when it has none: then only RDMA can measure it."""
    prefix_length: int = 0
    """Of the address's subnet, in bits."""
    line_rate_gb_per_s: float = 0.0
    """Per direction; 0 when unknown."""
    rack: str = ""
    """From a rack map, LLDP, Slurm's topology or an InfiniBand switch list; empty when unknown."""
    management_address: str = ""
    """Of RDMA ports: IP address by which other hosts reach this one, over whichever interface."""
    rdma_subnet: str = ""
    """What the GIDs of an RDMA port say: `InfiniBand fe80::/64`, `RoCE fe80::/64`; else empty."""
    other_addresses: tuple[str, ...] = ()
    """What else the interface answers to, as `10.0.0.7/24`, until one of them all is chosen."""

    @property
    def label(self) -> str:
        """For messages: `node7/mlx5_3`."""
        return f"{self.host_name}/{self.os_name}"

    @property
    def is_rdma_only(self) -> bool:
        """Whether it has no address, and RDMA can do without: hosts arrange it over another."""
        return not self.address and bool(self.management_address and self.rdma_subnet)
