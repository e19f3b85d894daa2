"""The network ports among the interfaces of a topology file, and their line rates.

A dump lists every interface of the host that is up. Interfaces of containers, bridges and tunnels
have no cable and are left out, but only without a PCI device: with one, an interface is a port
whatever its name.
"""

from __future__ import annotations

import re

from probes.inputs.messages import shortened
from probes.nccl_xml.records import CpuRecord, NetRecord

DEFAULT_NET_MBPS = 10_000
"""Speed that NCCL 2.30 src/graph/topo.cc assumes if it is missing or not above zero."""

_MAX_NET_MBPS = 3_200_000
"""Twice the fastest announced port; a higher value is not in Mb/s."""

_PSEUDO = re.compile(
    r"lo$|docker|veth|cali|br-|br\d|tunl|virbr|vnet|tap|tun|bond|team|dummy|flannel|cni|cilium|lxc|"
    r"lxd|vxlan|genev|gre|sit|ip6tnl|kube|nodelocaldns|wg|ovs|macvlan|ipvlan|ifb|podman|azv|weave"
)


def unattached_nets(cpus: tuple[CpuRecord, ...], notes: list[str]) -> list[tuple[NetRecord, ...]]:
    """Return the ports of every CPU without a PCI device, once per host, without pseudo devices."""
    pseudo: list[str] = []
    repeated: list[str] = []
    seen: set[tuple[str, str]] = set()
    kept: list[tuple[NetRecord, ...]] = []
    for cpu in cpus:
        nets = []
        for net in cpu.nets:
            if not net.is_port and is_pseudo(net.name):
                pseudo.append(net.name)
            elif (cpu.host, net.name) in seen:
                repeated.append(net.name)
            else:
                seen.add((cpu.host, net.name))
                nets.append(net)
        kept.append(tuple(nets))
    if pseudo:
        names = sorted(set(pseudo))
        notes.append(
            f"Interfaces without a cable of their own were left out ({len(names)}): "
            f"{shortened(names)}."
        )
    if repeated:
        notes.append(
            "Interfaces listed under several CPUs were taken once, at the first: "
            f"{shortened(sorted(set(repeated)))}."
        )
    return kept


def is_pseudo(name: str) -> bool:
    """Whether an interface of this name, if it has no PCI device, is a pseudo device."""
    return _PSEUDO.match(name) is not None


def net_gb_per_s(net: NetRecord) -> float:
    """Line rate of a port, corrected if the file's value is missing or implausible."""
    return _plausible_mbps(net.speed_mbps or 0) / 8000


def states_speed(net: NetRecord) -> bool:
    """Whether the file has the speed of a port."""
    return (net.speed_mbps or 0) > 0


def speed_notes(nets: list[NetRecord]) -> list[str]:
    """Return notes about the corrections of `net_gb_per_s` in these ports."""
    notes = []
    silent = [net.name for net in nets if not states_speed(net)]
    if silent:
        notes.append(
            f"NICs that do not state their speed: {DEFAULT_NET_MBPS:,} Mb/s assumed, as NCCL does: "
            f"{shortened(silent)}."
        )
    too_fast = [net.name for net in nets if (net.speed_mbps or 0) > _MAX_NET_MBPS]
    if too_fast:
        notes.append(
            "NICs whose stated speed exceeds that of any port: taken as kb/s, not Mb/s: "
            f"{shortened(too_fast)}."
        )
    return notes


def _plausible_mbps(stated: int) -> int:
    if stated <= 0:
        return DEFAULT_NET_MBPS
    # RCCL's model of a Slingshot machine has 200,000,000 for 200 Gb/s, which is in kb/s.
    return stated if stated <= _MAX_NET_MBPS else stated // 1000
