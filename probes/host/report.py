"""`HostReport`: the result of probing one host; a cluster's topology is merged from these."""

from __future__ import annotations

from dataclasses import dataclass

from probes.network.ports import NetworkPort
from probes.p2p.figures import P2pFigures
from probes.topology.graph import Topology


@dataclass(frozen=True, slots=True, order=True)
class HostIdentity:
    """Identity of a host; containers of one kernel share the boot id, not the namespace."""

    hostname: str
    boot_id: str = ""
    """Contents of /proc/sys/kernel/random/boot_id."""
    network_namespace: str = ""
    """Inode of /proc/self/ns/net."""


@dataclass(frozen=True)
class HostReport:
    """One host: its topology (devices named `n0/...`) and measurable ports (`host` is 0)."""

    identity: HostIdentity
    topology: Topology
    ports: tuple[NetworkPort, ...]
    missing_tools: tuple[str, ...] = ()
    """Names of tools that this host lacks: `ib_write_bw`."""
    gpu_figures: P2pFigures | None = None
    """Figures of its GPUs; None when they were not measured."""
