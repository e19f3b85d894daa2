"""`HostReport`: what one host says of itself, the unit that a cluster's topology is merged from."""

from __future__ import annotations

from dataclasses import dataclass

from probes.network.ports import NetworkPort
from probes.p2p.figures import P2pFigures
from probes.topology.graph import Topology


@dataclass(frozen=True, slots=True, order=True)
class HostIdentity:
    """What tells hosts apart; containers of one kernel share the boot id, not the namespace."""

    hostname: str
    boot_id: str = ""
    """/proc/sys/kernel/random/boot_id."""
    network_namespace: str = ""
    """Inode of /proc/self/ns/net."""


@dataclass(frozen=True)
class HostReport:
    """One host: its topology (devices named `n0/...`) and its measurable ports (`host` is 0)."""

    identity: HostIdentity
    topology: Topology
    ports: tuple[NetworkPort, ...]
    missing_tools: tuple[str, ...] = ()
    """Tools that this host lacks, by name: `ib_write_bw`."""
    gpu_figures: P2pFigures | None = None
    """None when its GPUs were not measured."""
