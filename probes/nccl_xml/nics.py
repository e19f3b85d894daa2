"""Which interfaces of a topology file are network ports, and how fast they are.

A dump lists every interface of the host that is up. Those of containers, bridges and tunnels carry
no wire of their own and are left out, but only where they sit at no PCI device: a real port is
believed whatever its name.
"""

from __future__ import annotations

import re

from probes.nccl_xml.records import CpuRecord, NetRecord

DEFAULT_NET_MBPS = 10_000
"""What NCCL 2.30 src/graph/topo.cc takes for a speed that is missing or not above zero."""

_MAX_NET_MBPS = 3_200_000
"""Twice the fastest port announced; what claims more was not written in Mb/s."""

_PSEUDO = re.compile(
    r"lo$|docker|veth|cali|br-|br\d|tunl|virbr|vnet|tap|tun|bond|team|dummy|flannel|cni|cilium|lxc|"
    r"lxd|vxlan|genev|gre|sit|ip6tnl|kube|nodelocaldns|wg|ovs|macvlan|ipvlan|ifb|podman|azv|weave"
)


def unattached_nets(cpus: tuple[CpuRecord, ...], notes: list[str]) -> list[tuple[NetRecord, ...]]:
    """The ports of every CPU that sit at no PCI device, once per host, without pseudo ones."""
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
            f"Interfaces that carry no wire of their own were left out ({len(names)}): "
            f"{shortened(names)}."
        )
    if repeated:
        notes.append(
            "Interfaces listed under several CPUs were taken once, at the first: "
            f"{shortened(sorted(set(repeated)))}."
        )
    return kept


def is_pseudo(name: str) -> bool:
    """Whether an interface of this name carries no wire of its own if it sits at no PCI device."""
    return _PSEUDO.match(name) is not None


def net_gb_per_s(net: NetRecord) -> float:
    """Line rate of a port, corrected where the file does not state a believable one."""
    return _believed_mbps(net.speed_mbps or 0) / 8000


def speed_notes(nets: list[NetRecord]) -> list[str]:
    """What `net_gb_per_s` had to correct in these ports."""
    notes = []
    silent = [net.name for net in nets if (net.speed_mbps or 0) <= 0]
    if silent:
        notes.append(
            f"NICs that do not state their speed: {DEFAULT_NET_MBPS:,} Mb/s assumed, as NCCL does: "
            f"{shortened(silent)}."
        )
    boastful = [net.name for net in nets if (net.speed_mbps or 0) > _MAX_NET_MBPS]
    if boastful:
        notes.append(
            "NICs that state more than any port does: their speed is taken as kb/s, not Mb/s: "
            f"{shortened(boastful)}."
        )
    return notes


def _believed_mbps(stated: int) -> int:
    if stated <= 0:
        return DEFAULT_NET_MBPS
    # RCCL's model of a Slingshot machine says 200,000,000 for 200 Gb/s: that is kb/s.
    return stated if stated <= _MAX_NET_MBPS else stated // 1000


def shortened(names: list[str]) -> str:
    """A few names in quotes on one line, and how many more there are."""
    some = ", ".join(f"{name!a:.40}" for name in names[:4])
    return some + (f" and {len(names) - 4} more" if len(names) > 4 else "")
