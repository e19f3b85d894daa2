"""The address of each interface to measure with: `with_common_addresses`.

An interface may have addresses in several subnets, in any order. If each host used its own first
address, two hosts might seem unreachable, so the leader selects for every port the subnet that most
hosts have.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

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
