"""Addresses of this host's network interfaces, and which RoCE GID carries one."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

SYSFS_INFINIBAND = Path("/sys/class/infiniband")


@dataclass(frozen=True, slots=True)
class InterfaceAddress:
    """An IP address of an interface."""

    address: str
    """IPv6 link-local ones with their scope: `fe80::1%eth0`."""
    prefix_length: int
    """Of its subnet, in bits."""

    @property
    def is_link_local(self) -> bool:
        """Reaches the hosts on the same link only."""
        return ipaddress.ip_address(self.address).is_link_local


def interface_addresses() -> dict[str, tuple[InterfaceAddress, ...]]:
    """IP addresses by interface: IPv4, then IPv6, those that are link-local last."""
    found = {}
    for interface, entries in sorted(psutil.net_if_addrs().items()):
        addresses = [
            InterfaceAddress(_scoped(entry.address, interface), _prefix_length(entry.netmask))
            for entry in entries
            if entry.family in (socket.AF_INET, socket.AF_INET6)
        ]
        found[interface] = tuple(sorted(addresses, key=_preference))
    return found


def gid_index(
    device: str, port: int, address: str, infiniband: Path = SYSFS_INFINIBAND
) -> int | None:
    """The GID of an RDMA port that speaks RoCE v2 from `address`; None when there is none.

    The kernel lists a port's GIDs in `gids/N` and what they speak in `gid_attrs/types/N`; that of
    an IPv4 address is `::ffff:a.b.c.d`. InfiniBand ports have none of this kind and need none.
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    wanted = ip if ip.version == 6 else ipaddress.IPv6Address(f"::ffff:{ip}")
    gids = infiniband / device / "ports" / str(port) / "gids"
    types = gids.parent / "gid_attrs" / "types"
    indices = sorted(int(path.name) for path in gids.glob("*") if path.name.isdecimal())
    for index in indices:
        try:
            speaks = (types / str(index)).read_text().strip()
            gid = ipaddress.IPv6Address((gids / str(index)).read_text().strip())
        except (OSError, ValueError):  # the kernel answers EINVAL for an empty entry
            continue
        if speaks == "RoCE v2" and gid == wanted:
            return index
    return None


def _scoped(address: str, interface: str) -> str:
    bare = address.partition("%")[0]
    return (
        f"{bare}%{interface}" if ipaddress.ip_address(bare).is_link_local and ":" in bare else bare
    )


def _prefix_length(netmask: str | None) -> int:
    return bin(int(ipaddress.ip_address(netmask))).count("1") if netmask else 0


def _preference(address: InterfaceAddress) -> tuple[bool, int, bytes]:
    ip = ipaddress.ip_address(address.address.partition("%")[0])
    return address.is_link_local, ip.version, ip.packed
