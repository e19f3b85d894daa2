"""Which of an interface's addresses to measure over: `with_common_addresses`.

An interface may have addresses in several subnets, and hosts may list them in any order. Two hosts
that each took their own first one would seem not to reach each other, so whoever sees all hosts
decides: for every port the subnet that most hosts are in.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from probes.network.ports import NetworkPort


def with_common_addresses(ports: Sequence[NetworkPort]) -> tuple[NetworkPort, ...]:
    """The ports, each with the one of its addresses whose subnet most hosts have in common.

    Among equals a host's own choice counts. An address that several hosts have (of a service, say)
    tells them not apart and is the last to be taken, as is a link-local one.
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

    chosen = []
    for port in ports:
        known = _addresses(port)
        best = max(known, key=rank) if len(known) > 1 else ""
        address, _, bits = best.rpartition("/")
        taken = replace(port, address=address, prefix_length=int(bits)) if best else port
        chosen.append(replace(taken, other_addresses=()))
    return tuple(chosen)


def _addresses(port: NetworkPort) -> list[str]:
    """With their prefix lengths, the host's choice first; what cannot be read is left out."""
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
