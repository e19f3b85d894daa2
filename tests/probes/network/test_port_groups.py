from typing import Unpack

import pytest

from probes.network.port_groups import Distance, group_ports
from probes.network.ports import NetworkPort, PortPair
from tests.probes.network.clusters import PortFields, cluster, port


def test_subnets_come_from_the_addresses() -> None:
    groups = group_ports(cluster(2, 2))
    assert groups.subnets == ("10.0.0.0/16", "10.1.0.0/16", "10.0.0.0/16", "10.1.0.0/16")
    assert groups.excluded == ()
    assert groups.networks == (0, 1, 0, 1)


def test_subnets_of_one_host_each_are_taken_as_routed() -> None:
    ports = [port(h, address=f"10.0.0.{2 * h}", prefix_length=31) for h in range(3)]
    ports += [port(h, 1, address=f"fd00::{h}:1", prefix_length=127) for h in range(3)]
    assert set(group_ports(ports).subnets) == {"routed IPv4", "routed IPv6"}
    assert group_ports(ports).networks == (0, 0, 0, 1, 1, 1)


def test_link_local_addresses_tell_no_subnets_so_every_rail_is_one_until_it_is_crossed() -> None:
    ports = [
        port(h, n, address=f"fe80::{h}:{n}%eth{n}", prefix_length=64)
        for h in range(1, 3)
        for n in range(2)
    ]
    groups = group_ports(ports)
    assert groups.subnets == ("fe80::/64 of NIC 0", "fe80::/64 of NIC 1") * 2
    assert groups.networks == (0, 1, 0, 1)
    assert groups.joined([PortPair(0, 3)]).networks == (0, 0, 0, 0)


def test_excluded_ports_have_reasons() -> None:
    ports = [
        port(0),
        port(1),
        port(2, address=""),
        port(3, address="10.0.0.999"),
        port(4, 1, address="172.17.0.1"),
        port(5, 1, address="172.17.0.1"),
        port(1, 1, address="10.0.0.2"),
    ]
    groups = group_ports(ports)
    excluded = dict(groups.excluded)
    assert excluded[2] == ""
    assert excluded[3] == "address '10.0.0.999' cannot be read"
    assert excluded[4] == "172.17.0.1 is the address of node5/mlx5_1, too"
    assert excluded[5] == "172.17.0.1 is the address of node4/mlx5_1, too"
    assert excluded[6] == "10.0.0.2 is the address of node1/mlx5_0, too"
    assert 1 not in excluded, "one port of a host keeps an address that two of its ports have"
    assert groups.networks == (0, 0, -1, -1, -1, -1, -1)


def test_a_measurement_across_subnets_makes_them_one_network() -> None:
    ports = cluster(2, 3)
    groups = group_ports(ports)
    assert groups.joined([PortPair(0, 4)]).networks == (0, 0, 1, 0, 0, 1)
    assert groups.joined([PortPair(0, 4), PortPair(1, 5)]).networks == (0,) * 6


@pytest.mark.parametrize(
    ("client", "server", "expected"),
    [
        (port(0, rack="A"), port(1, rack="A"), Distance.SAME_RACK),
        (port(0, rack="A"), port(1, rack="B"), Distance.OTHER_RACK),
        (port(0), port(1, address="10.9.0.1"), Distance.OTHER_RACK),
        (port(0, 0, prefix_length=8), port(1, 1, prefix_length=8), Distance.OTHER_RAIL),
        (port(0, 0, rack="A"), port(1, 1, rack="B"), Distance.OTHER_RACK_AND_RAIL),
    ],
)
def test_distances(client: NetworkPort, server: NetworkPort, expected: Distance) -> None:
    # A second host in either subnet, so that neither is pooled.
    ports = [client, server, port(2), port(3, 0, address="10.9.0.2")]
    assert group_ports(ports).distance(PortPair(0, 1)) is expected


def test_a_class_has_the_line_rate_of_the_slower_port_and_ends_at_the_network() -> None:
    ports = [port(0), port(1, line_rate_gb_per_s=12.5), port(0, 1), port(1, 1)]
    groups = group_ports(ports)
    kind = groups.link_class(PortPair(0, 1), "ping")
    assert kind is not None
    assert (kind.line_rate_gb_per_s, kind.tool, kind.network) == (12.5, "ping", 0)
    assert groups.link_class(PortPair(0, 3), "ping") is None


def rdma_port(host: int, nic: int = 0, **fields: Unpack[PortFields]) -> NetworkPort:
    """An InfiniBand port without an address."""
    usual: PortFields = {
        "address": "",
        "prefix_length": 0,
        "rdma_device": f"mlx5_{nic}",
        "rdma_port": 1,
        "management_address": f"192.168.0.{host + 1}",
        "rdma_subnet": "InfiniBand fe80::/64",
    }
    return port(host, nic, **(usual | fields))


def test_rdma_ports_without_an_address_are_in_the_subnet_of_their_gids_by_rail() -> None:
    ports = [rdma_port(host, nic) for host in range(2) for nic in range(2)]
    groups = group_ports(ports)
    assert groups.excluded == ()
    assert groups.racks == ("",) * 4
    rails = tuple(f"InfiniBand fe80::/64 of NIC {nic}" for nic in range(2))
    assert groups.subnets == rails * 2
    assert groups.networks == (0, 1, 0, 1)
    assert groups.joined([PortPair(0, 3)]).networks == (0, 0, 0, 0)
    alone = group_ports([rdma_port(0), rdma_port(1, 1)])
    assert alone.subnets == rails, "nothing is routed between LIDs"


def test_rdma_ports_of_hosts_that_cannot_be_told_apart_or_reached_are_not_measured() -> None:
    ports = [
        rdma_port(0, management_address="172.17.0.1"),
        rdma_port(1, management_address="172.17.0.1"),
        rdma_port(2, management_address=""),
        rdma_port(3, rdma_subnet=""),
        rdma_port(4),
        rdma_port(4, 1),
    ]
    excluded = dict(group_ports(ports).excluded)
    assert excluded == {
        0: "its host's 172.17.0.1 is an address of node1, too, and it has none of its own",
        1: "its host's 172.17.0.1 is an address of node0, too, and it has none of its own",
        2: "",
        3: "",
    }
