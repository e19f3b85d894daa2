"""Interfaces with addresses in several subnets."""

from dataclasses import replace

import pytest

from probes.network.addresses import with_common_addresses
from probes.network.port_groups import group_ports
from probes.network.ports import NetworkPort
from tests.probes.network.clusters import cluster, port


def chosen(*ports: NetworkPort) -> list[str]:
    return [f"{p.address}/{p.prefix_length}" for p in with_common_addresses(ports)]


def many(host: int, *addresses: str, nic: int = 0) -> NetworkPort:
    address, _, bits = addresses[0].partition("/")
    return port(host, nic, address=address, prefix_length=int(bits), other_addresses=addresses[1:])


def test_the_subnet_of_most_hosts_is_selected() -> None:
    # Left to themselves, every host would take its 10.x address and be alone with it.
    ports = [many(h, f"10.{h}.0.1/24", f"192.168.1.{h + 1}/24") for h in range(4)]
    ports += [many(4, "192.168.1.5/24"), many(5, "10.9.0.1/24", "192.168.1.6/24")]
    assert chosen(*ports) == [f"192.168.1.{h + 1}/24" for h in range(6)]
    assert len(set(group_ports(with_common_addresses(ports)).networks)) == 1
    assert not any(p.other_addresses for p in with_common_addresses(ports))


def test_ties_go_to_the_hosts_own_choice() -> None:
    ports = [many(h, f"10.0.0.{h + 1}/24", f"10.1.0.{h + 1}/24") for h in range(3)]
    assert chosen(*ports) == [f"10.0.0.{h + 1}/24" for h in range(3)]
    assert with_common_addresses(cluster(3, 2)) == cluster(3, 2)


def test_rails_stay_in_their_subnets() -> None:
    ports = [
        many(h, f"10.{n}.0.{h + 1}/24", f"172.{16 + h}.{n}.1/24", nic=n)
        for h in range(3)
        for n in range(2)
    ]
    assert chosen(*ports) == [f"10.{n}.0.{h + 1}/24" for h in range(3) for n in range(2)]


def test_an_address_of_several_hosts_and_a_link_local_one_come_last() -> None:
    ports = [many(h, "10.255.0.1/32", f"10.{h}.0.1/30", f"fe80::{h + 1}%eth0/64") for h in range(3)]
    assert chosen(*ports) == [f"10.{h}.0.1/30" for h in range(3)]
    link_local = [many(h, "10.255.0.1/32", f"fe80::{h + 1}%eth0/64") for h in range(3)]
    assert chosen(*link_local) == [f"fe80::{h + 1}%eth0/64" for h in range(3)]


@pytest.mark.parametrize("unreadable", ["no address", "10.0.0.1/99", ""])
def test_an_unreadable_address_is_not_selected(unreadable: str) -> None:
    assert chosen(many(0, "10.0.0.1/24", unreadable), many(1, "10.0.0.2/24")) == [
        "10.0.0.1/24",
        "10.0.0.2/24",
    ]
    bare = replace(port(0), address="", prefix_length=0, other_addresses=())
    assert with_common_addresses([bare]) == (bare,)
