from dataclasses import replace

import pytest

from probes.network.campaign.fabric import attach_network
from probes.network.campaign.run import run_campaign
from probes.network.ports import Failure, NetworkPort, PairResult
from probes.topology.bandwidth_class import NETWORK_LATENCY_US
from probes.topology.graph import DeviceKind, Link, Provenance, Topology
from probes.topology.replicate import Network, NetworkLayout, replicate
from probes.topology.validation import check_structure, validate
from tests.probes.machines import shipped
from tests.probes.network.clusters import (
    Answer,
    answering,
    bare_hosts,
    cluster,
    port,
    same_subnet,
    without_network,
)
from tests.probes.network.simulated_network import SimulatedFaults, SimulatedNetwork

NODES = 6


def probed(
    ports: tuple[NetworkPort, ...], answer: Answer, hosts: Topology | None = None
) -> Topology:
    findings = run_campaign(ports, answering(ports, answer))
    topology = attach_network(hosts or bare_hosts(ports), findings)
    check_structure(topology)
    return topology


def link(topology: Topology, src: str, dst: str) -> Link:
    (found,) = topology.links_between[src, dst]
    return found


def switches(topology: Topology) -> list[str]:
    return [d.name for d in topology.devices if d.kind is DeviceKind.NETWORK_SWITCH]


def simulated(seed: int, layout: NetworkLayout, faults: SimulatedFaults | None = None) -> Topology:
    """Six shipped hosts of 8 GPUs, probed with 3 % noise on a network of 25 GB/s."""
    network = SimulatedNetwork(
        NODES,
        8,
        seed,
        layout,
        has_racks=False,
        line_rate_gb_per_s=25.0,
        same_rack_gb_per_s=24.4,
        faults=faults or SimulatedFaults(),
    )
    hosts = without_network(replicate(shipped(), NODES, Network(1.7)))
    findings = run_campaign(network.ports, network.measure)
    topology = attach_network(hosts, findings)
    validate(topology)
    return topology


@pytest.mark.parametrize("layout", list(NetworkLayout))
def test_a_probed_cluster_is_the_one_that_replicate_describes(layout: NetworkLayout) -> None:
    described = replicate(shipped(), NODES, Network(3.0, layout, 24.4))
    identity = described.fingerprint()
    for seed in range(6):
        topology = simulated(seed, layout)
        assert switches(topology) == switches(described)
        assert topology.fingerprint() == identity
    assert replicate(shipped(), NODES, Network(3.0, layout)).fingerprint() == identity


def test_probed_racks_are_those_that_replicate_describes() -> None:
    """Two racks of four hosts; 12.2 of 24.4 GB/s pass between them while all hosts send."""
    ports = tuple(
        port(h, nic, rack=f"r{h // 4}", line_rate_gb_per_s=25.0) for h in range(8) for nic in (0, 1)
    )

    def answer(client: NetworkPort, server: NetworkPort) -> tuple[float, float] | None:
        same = client.rack == server.rack
        return same_subnet(client, server) and ((24.4, 3.0) if same else (12.2, 3.0))

    hosts = bare_hosts(ports)
    host = replace(hosts, devices=hosts.devices[:2])
    described = replicate(host, 8, Network(3.0, racks=(4, 4), oversubscription=2.0))
    topology = probed(ports, answer)
    assert switches(topology) == switches(described)
    assert topology.fingerprint() == described.fingerprint()


@pytest.mark.long
def test_faults_change_the_fingerprint() -> None:
    fine = simulated(0, NetworkLayout.RAILS).fingerprint()
    ports = frozenset({(2, 5)})
    others = [
        simulated(0, NetworkLayout.RAILS, SimulatedFaults(slow_ports=ports)),
        simulated(0, NetworkLayout.RAILS, SimulatedFaults(slow_receivers=ports)),
        simulated(0, NetworkLayout.RAILS, SimulatedFaults(dead_ports=ports)),
        simulated(0, NetworkLayout.FABRIC),
    ]
    identities = [cluster.fingerprint() for cluster in others]
    assert len({fine, *identities}) == 5
    assert (
        simulated(0, NetworkLayout.RAILS, SimulatedFaults(late_ports=ports)).fingerprint() == fine
    )


def test_every_link_has_the_figures_of_its_class() -> None:
    topology = probed(cluster(6, 2), same_subnet)
    assert switches(topology) == ["rail0", "rail1"]
    assert len(topology.links) == 24
    up = link(topology, "n3/nic1", "rail1")
    assert up == Link(
        "n3/nic1",
        "rail1",
        up.kind,
        48.0,
        2.0,
        Provenance.MEASURED,
        latency_provenance=Provenance.MEASURED,
    )


def test_a_slow_port_keeps_its_own_figure_in_the_direction_that_is_slow() -> None:
    ports = cluster(8)
    topology = probed(ports, lambda _a, b: (20.0 if b.host == 2 else 48.0, 4.0))
    assert link(topology, "n2/nic0", "rail0").bandwidth_gb_per_s == 48.0
    assert link(topology, "rail0", "n2/nic0").bandwidth_gb_per_s == 20.0
    assert "node2/mlx5_0: receives 20 GB/s" in "\n".join(topology.notes)


def test_a_late_port_has_the_latency_that_its_peers_do_not() -> None:
    topology = probed(cluster(8), lambda a, b: (48.0, 24.0 if 2 in (a.host, b.host) else 4.0))
    assert link(topology, "n2/nic0", "rail0").latency_us == 22.0
    assert link(topology, "n3/nic0", "rail0").latency_us == 2.0


def test_nics_that_nothing_reaches_have_no_network_link() -> None:
    ports = cluster(8)
    topology = probed(ports, lambda a, b: None if 2 in (a.host, b.host) else (48.0, 4.0))
    assert not topology.links_from["n2/nic0"]
    assert "NICs that have no network link, because nothing reaches them: n2/nic0." in (
        topology.notes
    )


def test_a_slow_rail_of_two_hosts_has_what_was_measured() -> None:
    slow = lambda a, b: same_subnet(a, b) and (12.0 if a.nic == 3 else 48.0, 4.0)  # noqa: E731
    topology = probed(cluster(2, 8), slow)
    for nic, figure in ((2, 48.0), (3, 12.0)):
        up = link(topology, f"n1/nic{nic}", f"rail{nic}")
        assert (up.bandwidth_gb_per_s, up.provenance) == (figure, Provenance.MEASURED)


def test_unmeasured_ports_inherit_and_unlisted_nics_are_left_alone() -> None:
    ports = tuple(replace(p, address="") if p.host == 4 else p for p in cluster(6, 2))
    extra = port(5, 2)
    topology = probed(ports, same_subnet, bare_hosts([*ports, extra]))
    inherited = link(topology, "n4/nic1", "rail1")
    assert (inherited.bandwidth_gb_per_s, inherited.provenance) == (48.0, Provenance.MEASURED)
    notes = "\n".join(topology.notes)
    assert "were not measured and have the figures of their class: node4/mlx5_0, node4/m" in notes
    assert "because they have no port that is up: n5/nic2." in notes


def test_nothing_measured_leaves_line_rates() -> None:
    ports = cluster(3, 2)
    findings = run_campaign(
        ports,
        lambda pairs: [
            PairResult(
                pair,
                bandwidth_failure=Failure.TOOL_MISSING,
                latency_failure=Failure.TOOL_MISSING,
            )
            for pair in pairs
        ],
    )
    topology = attach_network(bare_hosts(ports), findings)
    assert switches(topology) == ["rail0", "rail1"]
    up = link(topology, "n0/nic0", "rail0")
    assert (up.bandwidth_gb_per_s, up.provenance) == (50.0, Provenance.SYSFS)
    assert (up.latency_us, up.latency_provenance) == (NETWORK_LATENCY_US / 2, Provenance.ASSUMED)
    assert "because nothing measured it" in "\n".join(topology.notes)


def test_addresses_nowhere_and_speeds_nowhere() -> None:
    silent = cluster(3, 2, address="")
    assert switches(probed(silent, same_subnet)) == ["rail0", "rail1"]
    mute = cluster(3, address="", line_rate_gb_per_s=0.0)
    topology = probed(mute, same_subnet)
    assert switches(topology) == []
    assert "neither a measurement nor the port gives a speed" in "\n".join(topology.notes)


def test_racks_are_leaf_switches_below_a_spine() -> None:
    ports = tuple(port(h, nic, rack=f"r{h // 8}") for h in range(24) for nic in range(2))

    def answer(client: NetworkPort, server: NetworkPort) -> tuple[float, float] | None:
        same = client.rack == server.rack
        return same_subnet(client, server) and ((48.0, 4.0) if same else (24.0, 7.0))

    topology = probed(ports, answer)
    assert switches(topology) == [
        *("rail0-leaf0", "rail0-leaf1", "rail0-leaf2", "rail0-spine"),
        *("rail1-leaf0", "rail1-leaf1", "rail1-leaf2", "rail1-spine"),
    ]
    up = link(topology, "n9/nic1", "rail1-leaf1")
    assert (up.bandwidth_gb_per_s, up.latency_us) == (48.0, 2.0)
    across = link(topology, "rail1-leaf1", "rail1-spine")
    assert (across.bandwidth_gb_per_s, across.latency_us) == (8 * 24.0, 1.5)
    assert (across.lanes, across.provenance) == (8, Provenance.ASSUMED), "as slow alone"
    assert any("which is a lower bound" in note for note in topology.notes)


def test_noise_moves_no_uplink_across_a_class_border() -> None:
    # 11 ports of 24.4 GB/s together are at the border of two usual speeds.
    found = set()
    for seed in range(8):
        network = SimulatedNetwork(
            22, 1, seed, line_rate_gb_per_s=25.0, same_rack_gb_per_s=24.4, other_rack_gb_per_s=24.4
        )
        ports = tuple(replace(p, rack=f"r{p.host % 2}") for p in network.ports)
        network.ports = ports
        findings = run_campaign(ports, network.measure)
        found.add(attach_network(bare_hosts(ports), findings).fingerprint())
    assert len(found) == 1


def test_two_rails_on_each_of_two_networks() -> None:
    ends = [(host, nic) for host in range(5) for nic in range(4)]
    ports = tuple(port(h, nic, address=f"10.{nic // 2}.{nic}.{h + 1}") for h, nic in ends)
    topology = probed(ports, lambda a, b: (48.0, 4.0) if a.nic // 2 == b.nic // 2 else None)
    assert switches(topology) == ["network0", "network1"]
    assert link(topology, "n4/nic3", "network1").bandwidth_gb_per_s == 48.0


def test_a_single_host_stays_as_it_is() -> None:
    ports = cluster(1, 4)
    hosts = bare_hosts(ports)
    topology = attach_network(hosts, run_campaign(ports, answering(ports, same_subnet)))
    assert topology == hosts
