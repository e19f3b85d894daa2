"""Ports that share a PCIe link too narrow for all of them."""

from dataclasses import replace

import pytest

from probes.network.campaign.outliers import Quantity
from probes.network.campaign.run import run_campaign
from probes.network.campaign.sampling import Budget, schedule
from probes.network.campaign.uplinks import plan_together, shared_uplinks
from probes.network.port_groups import group_ports
from probes.network.ports import NetworkPort, PortPair
from probes.topology.graph import Device, DeviceKind, LinkKind, Topology
from tests.probes.machines import both_ways, shipped
from tests.probes.network.clusters import cluster, port
from tests.probes.network.simulated_network import SimulatedFaults, SimulatedNetwork


def host(uplink_gb_per_s: float, *addresses: str) -> Topology:
    """A PCIe switch below a CPU, and a NIC of 25 GB/s for each PCI address below the switch."""
    nics = [
        Device(f"n0/nic{i}", DeviceKind.NIC, 0, i, bus_id=address, line_rate_gb_per_s=25.0)
        for i, address in enumerate(addresses)
    ]
    cpu = Device("n0/cpu0", DeviceKind.CPU, 0)
    switch = Device("n0/switch0", DeviceKind.PCIE_SWITCH, 0)
    links = both_ways(switch.name, cpu.name, LinkKind.PCIE, uplink_gb_per_s)
    for nic in nics:
        links += both_ways(nic.name, switch.name, LinkKind.PCIE, 32.0)
    return Topology("host", (cpu, switch, *nics), tuple(links))


def ports_of(topology: Topology) -> tuple[NetworkPort, ...]:
    return tuple(
        port(nic.node, nic.index, line_rate_gb_per_s=nic.line_rate_gb_per_s)
        for nic in topology.nics
    )


def test_ports_below_one_switch_share_its_link_if_that_is_too_narrow() -> None:
    for uplink_gb_per_s, shared in ((32.0, ((0, 1),)), (50.0, ())):
        machine = host(uplink_gb_per_s, "0000:3b:00.0", "0000:3c:00.0")
        assert shared_uplinks(machine, ports_of(machine)) == shared


def test_the_ports_of_a_card_share_the_link_of_the_card() -> None:
    wide = host(80.0, "0000:3b:00.0", "0000:3b:00.1", "0000:3c:00.0")
    assert shared_uplinks(wide, ports_of(wide)) == ((0, 1),)
    nested = host(64.0, "0000:3b:00.0", "0000:3b:00.1", "0000:3c:00.0", "0000:3d:00.0")
    assert shared_uplinks(nested, ports_of(nested)) == ((0, 1, 2, 3),)


def test_nics_that_the_topology_does_not_place_share_nothing() -> None:
    machine = host(32.0, "0000:3b:00.0", "0000:3c:00.0")
    loose = replace(machine, links=())
    assert shared_uplinks(loose, ports_of(machine)) == ()
    assert shared_uplinks(loose, [port(7, 0), port(7, 1)]) == ()


def test_a_dgx_a100_has_four_switches_with_two_nics_each() -> None:
    machine = shipped()
    assert shared_uplinks(machine, ports_of(machine)) == ((0, 1), (2, 3), (4, 5), (6, 7))


def test_a_round_has_one_port_of_a_group_at_most() -> None:
    pairs = [PortPair(i, (i + 4 * step) % 40) for step in (1, 2, 9) for i in range(40)]
    groups = [(i, i + 1) for i in range(0, 40, 2)]
    rounds = schedule(40, pairs, groups)
    assert sorted(pair for members in rounds for pair in members) == sorted(pairs)
    for members in rounds:
        used = [port // 2 for pair in members for port in (pair.client, pair.server)]
        assert len(used) == len(set(used))
    assert len(rounds) <= 2 * len(schedule(40, pairs)) + 2


NETWORK = SimulatedNetwork(
    12, 4, line_rate_gb_per_s=25.0, same_rack_gb_per_s=24.3, other_rack_gb_per_s=24.3,
    noise=0.0, nics_per_uplink=2, uplink_gb_per_s=31.0,
)  # fmt: skip


def test_nics_with_a_common_uplink_are_measured_alone_and_once_together() -> None:
    network = replace(NETWORK)
    findings = run_campaign(network.ports, network.measure, conflicts=network.uplinks())
    figures = {f.median for f in findings.figures if f.quantity is Quantity.BANDWIDTH}
    assert figures == {24.3}
    assert not findings.slow_ports
    assert max(network.measurements) <= 8
    assert network.rounds == findings.rounds
    assert [note for note in findings.notes if "uplink" in note] == [
        f"mlx5_{nic} and mlx5_{nic + 1} together do 31 GB/s, alone 24.3 each: they share an uplink "
        "(measured from node0000 to node0001, for all hosts whose NICs share links alike)."
        for nic in (0, 2)
    ]
    unaware = replace(NETWORK)
    findings_unaware = run_campaign(unaware.ports, unaware.measure)
    assert (
        max(f.median for f in findings_unaware.figures if f.quantity is Quantity.BANDWIDTH) == 15.5
    )


def test_an_uplink_that_does_what_all_need_is_no_note() -> None:
    network = replace(NETWORK, uplink_gb_per_s=49.0)
    findings = run_campaign(network.ports, network.measure, conflicts=network.uplinks())
    assert network.uplinks()
    assert not [note for note in findings.notes if "uplink" in note]


@pytest.mark.parametrize("seed", range(3))
def test_slow_ports_are_named_all_the_same(seed: int) -> None:
    bad = frozenset({(3, 1), (17, 2), (40, 0)})
    network = replace(
        NETWORK, nodes=60, seed=seed, noise=0.03, faults=SimulatedFaults(slow_ports=bad)
    )
    findings = run_campaign(network.ports, network.measure, conflicts=network.uplinks())
    named = {(network.ports[s.port].host, network.ports[s.port].nic) for s in findings.slow_ports}
    assert named == bad
    assert not findings.slow_links
    assert max(network.measurements) <= 13


def test_ports_measured_together_are_no_suspects_and_have_budget_left() -> None:
    ports = cluster(4, 2)
    groups = [(0, 1), (2, 3), (4, 5), (6, 7)]
    networks = group_ports(ports)
    room = Budget(8, 8)
    assert plan_together(networks, groups, room, ()) == [PortPair(0, 2), PortPair(1, 3)]
    assert plan_together(networks, groups, room, {1}) == [PortPair(2, 4), PortPair(3, 5)]
    spent = Budget(8, 1, [PortPair(3, 1)])
    assert plan_together(networks, groups, spent, ()) == [PortPair(4, 6), PortPair(5, 7)]
    assert plan_together(replace(networks, networks=(0, -1) * 4), groups, room, ()) == []
    assert plan_together(networks, groups[:1], room, ()) == []
