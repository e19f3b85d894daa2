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
    """IP address; empty when it has none: then it cannot be measured, and says so."""
    prefix_length: int = 0
    """Of the address's subnet, in bits."""
    line_rate_gb_per_s: float = 0.0
    """Per direction; 0 when unknown."""
    rack: str = ""
    """From a rack map, LLDP, Slurm's topology or an InfiniBand switch list; empty when unknown."""

    @property
    def label(self) -> str:
        """For messages: `node7/mlx5_3`."""
        return f"{self.host_name}/{self.os_name}"
