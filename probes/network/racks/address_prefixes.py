"""Racks by address: hosts whose addresses begin alike are in one rack.

A prefix is a length in bits, for all addresses (`24`: 10.0.1.7 and 10.0.1.9 are in the rack
10.0.1.0/24), or a network (`10.0.1.0/24`), of which the longest counts. Lengths above 32 are for
IPv6, others for IPv4. An address to which no prefix applies is in no rack.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from probes.network.ports import NetworkPort
from tuccl.errors import MachineError

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class RackPrefixes:
    """Prefixes of the addresses of racks."""

    lengths: tuple[tuple[int, int], ...] = ()
    """Length in bits by IP version."""
    networks: tuple[_Network, ...] = ()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.lengths or self.networks)

    def rack_of(self, port: NetworkPort) -> str:
        """Return the rack of a port by its address, else by its host's; empty if unknown."""
        text = port.address or port.management_address
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return ""
        within = [network for network in self.networks if address in network]
        if within:
            return str(max(within, key=lambda network: network.prefixlen))
        length = dict(self.lengths).get(address.version)
        if length is None or address.is_link_local:
            return ""
        return str(ipaddress.ip_network(f"{address}/{length}", strict=False))


def parse_rack_prefixes(texts: Iterable[str]) -> RackPrefixes:
    """Parse prefixes, each a length in bits or a network.

    Raises:
        MachineError: A prefix is neither, or there are two lengths for one version of IP.
    """
    lengths: dict[int, int] = {}
    networks: list[_Network] = []
    for text in texts:
        try:
            if not text.isdecimal():
                networks.append(ipaddress.ip_network(text))
                continue
            length = int(text)
            version = 4 if length <= ipaddress.IPV4LENGTH else 6
            if not 1 <= length <= ipaddress.IPV6LENGTH or version in lengths:
                raise ValueError
            lengths[version] = length
        except ValueError:
            raise MachineError(
                f"rack prefix {text!a:.40}: give a length in bits, as 24, one for each version of "
                "IP, or networks, as 10.0.1.0/24"
            ) from None
    return RackPrefixes(tuple(lengths.items()), tuple(networks))
