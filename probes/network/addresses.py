"""Addresses of this host's network interfaces, and what the GIDs of its RDMA ports say."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

SYSFS_INFINIBAND = Path("/sys/class/infiniband")
_OUTSIDE = ("192.0.2.1", "2001:db8::1")
"""Documentation addresses (RFC 5737 and 3849), which only a default route leads to."""


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
    return next((i for i, gid in _roce_v2_gids(device, port, infiniband) if gid == wanted), None)


def link_local_gid_index(device: str, port: int, infiniband: Path = SYSFS_INFINIBAND) -> int | None:
    """The GID by which a RoCE v2 port speaks without an IP address; None on InfiniBand.

    The kernel makes it of the port's hardware address, whether or not its interface has addresses.
    """
    gids = _roce_v2_gids(device, port, infiniband)
    return next((index for index, gid in gids if gid.is_link_local), None)


def rdma_subnet(
    device: str, port: int, link_layer: str, infiniband: Path = SYSFS_INFINIBAND
) -> str:
    """The subnet of an RDMA port by its first GID, `InfiniBand fe80::/64`; empty: not known.

    A subnet manager gives InfiniBand ports the prefix of their subnet, by default that of every
    other one; a RoCE port has to speak from a link-local GID.

    Args:
        device: `mlx5_0`.
        port: from 1.
        link_layer: `InfiniBand` or `Ethernet`.
        infiniband: where the kernel lists RDMA devices.
    """
    if link_layer != "InfiniBand":
        usable = link_local_gid_index(device, port, infiniband) is not None
        return "RoCE fe80::/64" if usable else ""
    try:
        gid = (infiniband / device / "ports" / str(port) / "gids" / "0").read_text().strip()
        network = ipaddress.ip_network((ipaddress.IPv6Address(gid), 64), strict=False)
    except (OSError, ValueError):
        return ""
    return f"{link_layer} {network}" if int(network.network_address) else ""


def management_address(
    addresses: Mapping[str, Sequence[InterfaceAddress]], nics: Collection[str] = ()
) -> str:
    """The address by which other hosts reach this one; empty without a routable one.

    That of the default route, else the first of an interface of `nics`, else of any other.
    """
    routable = {
        each.address: interface
        for interface, known in addresses.items()
        for each in known
        if not (each.is_link_local or ipaddress.ip_address(each.address).is_loopback)
    }
    by_route = (source for outside in _OUTSIDE if (source := _source_towards(outside)) in routable)
    return next(by_route, "") or min(
        routable, key=lambda address: routable[address] not in nics, default=""
    )


def _source_towards(outside: str) -> str:
    """The address that the kernel would send from; connecting a UDP socket sends nothing."""
    family = socket.AF_INET6 if ":" in outside else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((outside, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def _roce_v2_gids(
    device: str, port: int, infiniband: Path
) -> Iterator[tuple[int, ipaddress.IPv6Address]]:
    gids = infiniband / device / "ports" / str(port) / "gids"
    types = gids.parent / "gid_attrs" / "types"
    for index in sorted(int(path.name) for path in gids.glob("*") if path.name.isdecimal()):
        try:
            speaks = (types / str(index)).read_text().strip()
            gid = ipaddress.IPv6Address((gids / str(index)).read_text().strip())
        except (OSError, ValueError):  # the kernel answers EINVAL for an empty entry
            continue
        if speaks == "RoCE v2":
            yield index, gid


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
