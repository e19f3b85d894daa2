"""What leaves racks while all of their ports send, on a simulated network without noise."""

import random
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.network.campaign.fabric import attach_network
from probes.network.campaign.findings import Findings
from probes.network.campaign.rack_uplinks import RackUplink, plan_alone, plan_at_once
from probes.network.campaign.run import run_campaign
from probes.network.port_groups import group_ports
from probes.network.ports import PortPair
from probes.topology.graph import Provenance, Topology
from probes.topology.replicate import Network, NetworkLayout, replicate
from sketches.congestion import prune_congested
from tests.probes.network.clusters import bare_hosts, port
from tests.probes.network.simulated_network import SimulatedFaults, SimulatedNetwork

EVERY = tuple(permutations(range(8), 2))


def racked(
    sizes: tuple[int, ...],
    rack_gb_per_s: float,
    nics: int = 1,
    layout: NetworkLayout = NetworkLayout.RAILS,
) -> SimulatedNetwork:
    """Racks of so many hosts, whose ports of 25 GB/s do 24.4."""
    network = SimulatedNetwork(
        sum(sizes), nics, 0, layout, line_rate_gb_per_s=25.0, same_rack_gb_per_s=24.4,
        other_rack_gb_per_s=24.4, noise=0.0, rack_gb_per_s=rack_gb_per_s,
    )  # fmt: skip
    rack = [number for number, size in enumerate(sizes) for _ in range(size)]
    network.ports = tuple(replace(p, rack=f"r{rack[p.host]}") for p in network.ports)
    return network


def measured(network: SimulatedNetwork) -> tuple[Findings, Topology]:
    findings = run_campaign(network.ports, network.measure, conflicts=network.uplinks())
    return findings, attach_network(bare_hosts(network.ports), findings)


@pytest.mark.parametrize("layout", list(NetworkLayout))
def test_an_oversubscribed_uplink_has_what_it_carries(layout: NetworkLayout) -> None:
    """Two racks of four hosts at 2:1: half of their ports alone would just fill the uplinks."""
    leaf_gb_per_s = {NetworkLayout.RAILS: 50.0, NetworkLayout.FABRIC: 100.0}[layout]
    findings, topology = measured(racked((4, 4), leaf_gb_per_s, 2, layout))
    described = replicate(
        replace(bare_hosts(findings.groups.ports[:2]), name="host"),
        8,
        Network(3.0, layout, racks=(4, 4), oversubscription=2.0),
    )
    leaf, spine = {
        NetworkLayout.RAILS: ("rail1-leaf0", "rail1-spine"),
        NetworkLayout.FABRIC: ("fabric-leaf0", "fabric-spine"),
    }[layout]
    for ends in ((leaf, spine), (spine, leaf)):
        (uplink,) = topology.links_between[ends]
        assert uplink.bandwidth_gb_per_s == pytest.approx(leaf_gb_per_s)
        assert uplink.provenance is Provenance.MEASURED
    assert topology.fingerprint() == described.fingerprint()
    (note,) = [note for note in findings.notes if "congestion score" in note]
    # 12.5 of 24.4 GB/s.
    assert note == (
        "Between racks ports do 12.5 GB/s each while all of a rack send, 24.4 alone, so the links "
        "between racks are the limit (congestion score 0.49): r0, r1."
    )
    assert not any("lower bound" in note for note in topology.notes)
    kept, removed = prune_congested(
        topology, [(f"n{a}/nic{nic}", f"n{b}/nic{nic}") for a, b in EVERY for nic in range(2)]
    )
    assert {("n0/nic0", "n7/nic0"), ("n1/nic1", "n6/nic1")} <= set(kept)
    assert removed["n3/nic1", "n4/nic1"].startswith("congestion score 0.49: ")


@pytest.mark.parametrize("seed", range(8))
def test_contention_is_no_fault_of_a_path(seed: int) -> None:
    """Pairs whose rounds have few others between the racks do more than those of full rounds."""
    network = racked((2, 2), 24.4)
    network.noise, network.random = 0.02, random.Random(seed)
    findings, _ = measured(network)
    assert all(uplink.is_contended for uplink in findings.uplinks)
    assert not findings.slow_links
    assert not findings.slow_ports
    slow = racked((4, 4), 50.0)
    slow.faults = SimulatedFaults(slow_pairs=frozenset({PortPair(1, 5)}), slow_share=0.2)
    assert {link.pair for link in measured(slow)[0].slow_links} == {PortPair(1, 5), PortPair(5, 1)}


def test_an_uplink_that_carries_all_ports_is_no_note() -> None:
    findings, topology = measured(racked((4, 4), 100.0))
    assert {uplink.is_contended for uplink in findings.uplinks} == {False}
    assert {uplink.score for uplink in findings.uplinks} == {0.0}
    (uplink,) = topology.links_between["rail0-leaf0", "rail0-spine"]
    assert (uplink.bandwidth_gb_per_s, uplink.provenance) == (4 * 24.4, Provenance.MEASURED)
    assert not [note for note in (*findings.notes, *topology.notes) if "racks" in note]


def test_paths_that_are_slow_alone_are_no_contention() -> None:
    network = replace(racked((4, 4), 1000.0), other_rack_gb_per_s=12.2)
    network.ports = racked((4, 4), 1000.0).ports
    findings, topology = measured(network)
    assert not any(uplink.is_contended for uplink in findings.uplinks)
    (uplink,) = topology.links_between["rail0-leaf0", "rail0-spine"]
    assert (uplink.bandwidth_gb_per_s, uplink.provenance) == (4 * 12.2, Provenance.ASSUMED)
    assert any("which is a lower bound" in note for note in topology.notes)
    every = tuple((f"n{a}/nic0", f"n{b}/nic0") for a, b in EVERY)
    assert prune_congested(topology, every) == (every, {})


def test_an_odd_rack_meets_the_first_again() -> None:
    findings, _ = measured(racked((3, 3, 3), 30.0))
    assert {(uplink.rack, uplink.sends) for uplink in findings.uplinks} == {
        (rack, sends) for rack in ("r0", "r1", "r2") for sends in (True, False)
    }
    assert all(uplink.at_once_gb_per_s == pytest.approx(30.0) for uplink in findings.uplinks)


def test_the_score_is_the_share_that_is_lost_at_once() -> None:
    uplink = RackUplink(0, "r0", sends=True, ports=4, at_once_gb_per_s=25.0, alone_gb_per_s=25.0)
    assert uplink.score == 0.75
    assert replace(uplink, at_once_gb_per_s=86.0).score == 0.0, "within noise"
    assert not replace(uplink, alone_gb_per_s=0.0).is_contended, "nobody measured it alone"


def test_ports_that_share_a_link_of_their_host_are_not_measured_at_once() -> None:
    """Their host's link would be taken for the rack's."""
    network = replace(racked((4, 4), 1000.0, 2), nics_per_uplink=2, uplink_gb_per_s=31.0)
    network.ports = racked((4, 4), 1000.0, 2).ports
    findings, _ = measured(network)
    assert len({uplink.network for uplink in findings.uplinks}) == 2
    assert not any(uplink.is_contended for uplink in findings.uplinks)


@pytest.mark.parametrize("seed", range(4))
def test_noise_makes_no_contention_and_hides_none(seed: int) -> None:
    for rack_gb_per_s in (1e6, 100.0):
        network = SimulatedNetwork(60, 2, seed, noise=0.03, rack_gb_per_s=rack_gb_per_s)
        uplinks = run_campaign(network.ports, network.measure).uplinks
        assert uplinks
        for uplink in uplinks:
            assert uplink.is_contended == (48.9 * uplink.ports > 1.2 * rack_gb_per_s)


def test_a_slow_port_takes_no_part() -> None:
    network = racked((8, 8), 1e6)
    network.faults = SimulatedFaults(slow_ports=frozenset({(3, 0)}))
    findings, _ = measured(network)
    assert [(s.port, s.role) for s in findings.slow_ports]
    assert {uplink.ports for uplink in findings.uplinks} == {7}
    assert not any(uplink.is_contended for uplink in findings.uplinks)


@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5), nics=st.integers(1, 3))
def test_rounds_use_a_port_once_and_lead_one_rack_one_way(sizes: list[int], nics: int) -> None:
    rack = [number for number, size in enumerate(sizes) for _ in range(size)]
    ports = tuple(
        port(host, nic, rack=f"r{rack[host]}") for host in range(len(rack)) for nic in range(nics)
    )
    groups = group_ports(ports)
    rounds = plan_at_once(groups, (), ())
    assert len(rounds) == (0 if len(sizes) < 2 else 4 if len(sizes) % 2 else 2)
    for pairs in rounds:
        used = [end for pair in pairs for end in (pair.client, pair.server)]
        assert len(used) == len(set(used))
        sending = {groups.racks[pair.client] for pair in pairs}
        assert sending.isdisjoint(groups.racks[pair.server] for pair in pairs)
        assert all(ports[pair.client].nic == ports[pair.server].nic for pair in pairs)
    for pairs in plan_alone(rounds, groups):
        leaving = [(groups.networks[p.client], groups.racks[p.client]) for p in pairs]
        entering = [(groups.networks[p.server], groups.racks[p.server]) for p in pairs]
        assert len(leaving) == len(set(leaving))
        assert len(entering) == len(set(entering))
