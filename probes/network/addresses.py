"""Addresses of this host's network interfaces, and the GIDs of its RDMA ports."""

from __future__ import annotations

import ipaddress
import socket
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from probes.network.ports import NetworkPort


def with_common_addresses(ports: Sequence[NetworkPort]) -> tuple[NetworkPort, ...]:
    """Set each port's address to the one whose subnet most hosts have.

    Ties go to the host's own choice. Addresses that several hosts have (of a service, say) and
    link-local addresses come last.
    """
    hosts_of: dict[str, set[int]] = {}
    subnets: dict[str, set[int]] = {}
    for port in ports:
        for text in _addresses(port):
            hosts_of.setdefault(_ip(text), set()).add(port.host)
            subnets.setdefault(_subnet(text), set()).add(port.host)
    shared = Counter({address: len(hosts) for address, hosts in hosts_of.items()})

    def rank(text: str) -> tuple[bool, bool, int]:
        is_link_local = ipaddress.ip_interface(text).is_link_local
        return shared[_ip(text)] == 1, not is_link_local, len(subnets[_subnet(text)])

    result = []
    for port in ports:
        known = _addresses(port)
        best = max(known, key=rank) if len(known) > 1 else ""
        address, _, bits = best.rpartition("/")
        selected = replace(port, address=address, prefix_length=int(bits)) if best else port
        result.append(replace(selected, other_addresses=()))
    return tuple(result)


def _addresses(port: NetworkPort) -> list[str]:
    """Valid addresses with their prefix lengths, the host's choice first."""
    own = [f"{port.address}/{port.prefix_length}"] if port.prefix_length else []
    return [text for text in (*own, *port.other_addresses) if _is_interface(text)]


def _is_interface(text: str) -> bool:
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return False
    return True


def _ip(text: str) -> str:
    return str(ipaddress.ip_interface(text).ip)


def _subnet(text: str) -> str:
    return str(ipaddress.ip_interface(text).network)


SYSFS_INFINIBAND = Path("/sys/class/infiniband")
_OUTSIDE = ("192.0.2.1", "2001:db8::1")
"""Documentation addresses (RFC 5737 and 3849), reached by a default route only."""


@dataclass(frozen=True, slots=True)
class InterfaceAddress:
    """An IP address of an interface."""

    address: str
    """The address, with its scope if IPv6 link-local: `fe80::1%eth0`."""
    prefix_length: int
    """Prefix length of its subnet, in bits."""

    @property
    def is_link_local(self) -> bool:
        """Whether it reaches hosts on the same link only."""
        return ipaddress.ip_address(self.address).is_link_local


def interface_addresses() -> dict[str, tuple[InterfaceAddress, ...]]:
    """Return IP addresses by interface: IPv4, then IPv6, link-local addresses last."""
    found = {}
    for interface, entries in sorted(psutil.net_if_addrs().items()):
        addresses = [
            InterfaceAddress(_with_scope(entry.address, interface), _prefix_length(entry.netmask))
            for entry in entries
            if entry.family in (socket.AF_INET, socket.AF_INET6)
        ]
        found[interface] = tuple(sorted(addresses, key=_preference))
    return found


def gid_index(
    device: str, port: int, address: str, infiniband: Path = SYSFS_INFINIBAND
) -> int | None:
    """Return the index of an RDMA port's RoCE v2 GID for `address`; None when there is none.

    The kernel lists a port's GIDs in `gids/N` and their types in `gid_attrs/types/N`; the GID of an
    IPv4 address is `::ffff:a.b.c.d`. InfiniBand ports have and need none.
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    wanted = ip if ip.version == 6 else ipaddress.IPv6Address(f"::ffff:{ip}")
    return next((i for i, gid in _roce_v2_gids(device, port, infiniband) if gid == wanted), None)


def link_local_gid_index(device: str, port: int, infiniband: Path = SYSFS_INFINIBAND) -> int | None:
    """Return the index of the GID of a RoCE v2 port without an IP address; None on InfiniBand.

    The kernel derives it from the port's hardware address, also without an IP address.
    """
    gids = _roce_v2_gids(device, port, infiniband)
    return next((index for index, gid in gids if gid.is_link_local), None)


def rdma_subnet(
    device: str, port: int, link_layer: str, infiniband: Path = SYSFS_INFINIBAND
) -> str:
    """Return the subnet of an RDMA port by its first GID, `InfiniBand fe80::/64`; empty if unknown.

    A subnet manager gives InfiniBand ports the prefix of their subnet, by default the same in all
    subnets; a RoCE port needs a link-local GID. Ports count from 1; `link_layer` is `InfiniBand` or
    `Ethernet`.
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
    """Return the address by which other hosts reach this host; empty without a routable address.

    It is that of the default route, else the first of an interface in `nics`, else any.
    """
    routable = {
        entry.address: interface
        for interface, known in addresses.items()
        for entry in known
        if not (entry.is_link_local or ipaddress.ip_address(entry.address).is_loopback)
    }
    by_route = (source for outside in _OUTSIDE if (source := _source_address(outside)) in routable)
    return next(by_route, "") or min(
        routable, key=lambda address: routable[address] not in nics, default=""
    )


def _source_address(target: str) -> str:
    """Address that the kernel would send from; connecting a UDP socket sends nothing."""
    family = socket.AF_INET6 if ":" in target else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
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
            gid_type = (types / str(index)).read_text().strip()
            gid = ipaddress.IPv6Address((gids / str(index)).read_text().strip())
        except (OSError, ValueError):  # the kernel answers EINVAL for an empty entry
            continue
        if gid_type == "RoCE v2":
            yield index, gid


def _with_scope(address: str, interface: str) -> str:
    bare = address.partition("%")[0]
    return (
        f"{bare}%{interface}" if ipaddress.ip_address(bare).is_link_local and ":" in bare else bare
    )


def _prefix_length(netmask: str | None) -> int:
    return bin(int(ipaddress.ip_address(netmask))).count("1") if netmask else 0


def _preference(address: InterfaceAddress) -> tuple[bool, int, bytes]:
    ip = ipaddress.ip_address(address.address.partition("%")[0])
    return address.is_link_local, ip.version, ip.packed
