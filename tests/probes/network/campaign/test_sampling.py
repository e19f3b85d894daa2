from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.network.campaign.sampling import PER_PORT_LIMIT, plan_base, plan_reach, schedule
from probes.network.port_groups import Distance, group_ports
from probes.network.ports import NetworkPort, PortPair
from tests.probes.network.clusters import PortFields, cluster, port


def planned(ports: tuple[NetworkPort, ...]) -> list[PortPair]:
    plan = plan_base(group_ports(ports))
    return [pair for pairs in plan.by_distance for pair in pairs]


def racked(
    hosts: int, nics: int, per_rack: int, prefix_length: int = 16
) -> tuple[NetworkPort, ...]:
    return tuple(
        port(host, nic, rack=f"r{host // per_rack}", prefix_length=prefix_length)
        for host in range(hosts)
        for nic in range(nics)
    )


def peers_of(pairs: list[PortPair], index: int) -> set[int]:
    met = [{pair.client, pair.server} for pair in pairs]
    return {peer for ends in met if index in ends for peer in ends} - {index}


def test_a_rack_of_eight_hosts_and_one_nic_takes_two_circles() -> None:
    pairs = planned(cluster(8))
    assert len(pairs) == 16
    for index in range(8):
        assert peers_of(pairs, index) == {(index + step) % 8 for step in (1, 2, 6, 7)}
        assert sum(pair.client == index for pair in pairs) == 2


def test_racks_are_circles_and_each_port_sends_to_the_rack_after_its_own() -> None:
    ports = racked(24, 2, 8)
    groups = group_ports(ports)
    pairs = planned(ports)
    apart = Counter(groups.distance(pair) for pair in pairs)
    assert apart == {Distance.SAME_RACK: 48, Distance.OTHER_RACK: 48}
    for index in range(48):
        assert sum(pair.client == index for pair in pairs) == 2
        assert len(peers_of(pairs, index)) == 4


def test_racks_of_different_size_still_meet_and_share_the_work() -> None:
    hosts = [("a", 7), ("b", 3), ("c", 5), ("d", 1)]
    racks = [name for name, size in hosts for _ in range(size)]
    ports = tuple(port(host, rack=rack) for host, rack in enumerate(racks))
    pairs = planned(ports)
    for index in range(16):
        across = [p for p in peers_of(pairs, index) if racks[p] != racks[index]]
        assert across
        assert sum(index in (pair.client, pair.server) for pair in pairs) <= 4


def test_a_flat_network_is_sampled_across_rails_by_a_few_pairs_only() -> None:
    def across(hosts: int) -> int:
        ports = cluster(hosts, 4, prefix_length=8)
        return sum(ports[p.client].nic != ports[p.server].nic for p in planned(ports))

    assert across(16) == across(256) == 16


@pytest.mark.parametrize("hosts", [2, 3, 4])
def test_small_clusters_are_measured_pair_by_pair_in_both_directions(hosts: int) -> None:
    pairs = planned(cluster(hosts))
    everyone = {PortPair(a, b) for a in range(hosts) for b in range(hosts) if a != b}
    assert set(pairs) == everyone


def test_nics_that_only_some_hosts_have_are_measured_too() -> None:
    flat: PortFields = {"prefix_length": 8}
    ports = (*cluster(12, 1, **flat), port(3, 1, **flat), port(7, 2, **flat), port(7, 3, **flat))
    pairs = planned(ports)
    for index in range(len(ports)):
        assert peers_of(pairs, index), ports[index].label


def test_a_port_that_only_met_another_network_is_measured_in_its_own() -> None:
    flat: PortFields = {"prefix_length": 8}
    ports = (*cluster(12, 1, **flat), port(3, 1, **flat), port(5, 2, address="11.0.0.1"))
    ports = (*ports, port(6, 2, address="11.0.0.2"))
    plan = plan_base(group_ports(ports), spent=[PortPair(12, 13)])
    assert peers_of([pair for pairs in plan.by_distance for pair in pairs], 12)


def test_reach_compares_neighbouring_subnets_by_few_pairs() -> None:
    ports = cluster(64, 8)
    pairs = plan_reach(group_ports(ports))
    assert 16 <= len(pairs) <= 32
    used = Counter(index for pair in pairs for index in (pair.client, pair.server))
    assert max(used.values()) <= 2
    joined = {frozenset((ports[p.client].nic, ports[p.server].nic)) for p in pairs}
    assert joined >= {frozenset((rail, (rail + 1) % 8)) for rail in range(8)}
    assert all(ports[p.client].host != ports[p.server].host for p in pairs)
    assert plan_reach(group_ports(cluster(4))) == []


def test_both_directions_of_a_pair_are_two_rounds() -> None:
    assert schedule(2, [PortPair(0, 1), PortPair(1, 0)]) == [[PortPair(0, 1)], [PortPair(1, 0)]]


@pytest.mark.long
@given(
    hosts=st.integers(2, 24),
    nics=st.integers(1, 3),
    per_rack=st.integers(1, 24),
    flat=st.booleans(),
)
def test_all_ports_are_measured_within_the_limit_and_no_host_with_itself(
    hosts: int, nics: int, per_rack: int, flat: bool
) -> None:
    ports = racked(hosts, nics, per_rack, prefix_length=8 if flat else 16)
    pairs = planned(ports)
    used = Counter(index for pair in pairs for index in (pair.client, pair.server))
    assert set(used) == set(range(len(ports)))
    assert max(used.values()) <= PER_PORT_LIMIT
    assert len(set(pairs)) == len(pairs)
    assert all(ports[p.client].host != ports[p.server].host for p in pairs)
    rounds = schedule(len(ports), pairs)
    assert sorted(pair for members in rounds for pair in members) == sorted(pairs)
    for members in rounds:
        ends = [index for pair in members for index in (pair.client, pair.server)]
        assert len(ends) == len(set(ends))
