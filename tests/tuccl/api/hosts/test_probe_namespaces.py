"""`tuccl probe --hosts` on network namespaces joined by cables of known rate and delay."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from probes.files.read import read_topology
from probes.host.probe import HostProbeOptions
from probes.topology.graph import LinkKind, Provenance, Topology
from probes.topology.paths import Path as Route
from probes.topology.paths import network_path
from tests.network_namespaces import Interface, NetworkNamespaces, requires_namespaces
from tests.tuccl.conftest import Run
from tuccl.crew.cluster_probe import ClusterOptions, probe_cluster
from tuccl.crew.launched import LaunchedPlaces

RATE_MBIT, SLOW_MBIT, DELAY_US = 20, 5, 500
GOOD = Interface(rate_mbit=RATE_MBIT, delay_us=DELAY_US)
SLOW = Interface(rate_mbit=SLOW_MBIT, delay_us=DELAY_US)
LAUNCHER = "ip netns exec {host}"

pytestmark = requires_namespaces


@dataclass(frozen=True)
class Probe:
    code: int
    document: dict[str, object]
    errors: str
    topology: Topology

    def route(self, src: int, dst: int) -> Route:
        return route(self.topology, src, dst)


def route(topology: Topology, src: int, dst: int) -> Route:
    found = network_path(topology, f"n{src}/nic0", f"n{dst}/nic0")
    assert found is not None
    return found


def probe(run_tuccl: Run, folder: Path, hosts: NetworkNamespaces, *args: str) -> Probe:
    names = ",".join(hosts.namespace(host) for host in range(len(hosts.hosts)))
    done = run_tuccl(
        "probe", "--hosts", names, "--launcher", LAUNCHER, "--interfaces", "eth*",
        "--seconds-per-pair", "1", "-o", "topology.json", "--json", *args,
    )  # fmt: skip
    assert done.stdout, done.stderr
    topology = read_topology(folder / "topology.json")
    return Probe(done.returncode, json.loads(done.stdout), done.stderr, topology)


@pytest.mark.slow
def test_what_is_shaped_is_measured_and_what_is_broken_is_named(
    run_tuccl: Run, tmp_path: Path
) -> None:
    with NetworkNamespaces([[GOOD], [GOOD], [SLOW], [GOOD], [GOOD]]) as hosts:
        hosts.lead_nowhere(4)
        found = probe(run_tuccl, tmp_path, hosts)
        assert not hosts.processes()
        names = [hosts.namespace(host) for host in range(5)]
    assert found.code == 1, found.errors
    assert found.topology.hosts == tuple(names)
    network = found.document["network"]
    assert isinstance(network, dict)
    del network["measurements"]
    assert network == {
        "slow_ports": [f"{names[2]}/eth0"],
        "slow_links": [],
        "dead_links": [],
        "unreachable_ports": [f"{names[4]}/eth0"],
        "unreachable_hosts": [names[4]],
    }, found.topology.notes
    assert any(note.startswith(f"{names[2]}/eth0: ") for note in found.topology.notes)
    assert f"Host {names[4]} is not reached on any port." in found.topology.notes
    for src, dst, mbit in (
        (0, 1, RATE_MBIT),
        (1, 3, RATE_MBIT),
        (0, 2, SLOW_MBIT),
        (2, 3, SLOW_MBIT),
    ):
        way = found.route(src, dst)
        assert way.bandwidth_gb_per_s == pytest.approx(mbit / 8000, rel=0.1)
        assert way.latency_us == pytest.approx(2 * DELAY_US, rel=0.2)
        assert {link.provenance for link in way.links} == {Provenance.MEASURED}
    assert network_path(found.topology, "n0/nic0", "n4/nic0") is None


@pytest.mark.slow
def test_a_host_that_never_answers_and_one_that_dies_are_named_and_nobody_else() -> None:
    # On a busy machine a message waits for the processor for 80 us: little beside these delays,
    # while without them, at 25 us a message, it would make a sound way a slow one.
    with NetworkNamespaces([[GOOD] for _ in range(4)]) as hosts:
        names = [hosts.namespace(host) for host in range(4)]
        fails = f"case $0 in {names[0]}) echo no route >&2; exit 255;; esac"
        places = LaunchedPlaces(names, f"sh -c '{fails}; exec ip netns exec $0 \"$@\"' {{host}}")
        options = ClusterOptions(
            HostProbeOptions(interfaces=("eth*",), measure_p2p=False),
            seconds_per_pair=1,
            allow_missing=True,
            names_are_given=True,
        )
        try:
            found = probe_cluster(places, options, _killing(hosts, 3, after_round=2))
        finally:
            places.close()
    assert found.topology.hosts == tuple(names[1:])
    assert [(lost.name, lost.reason) for lost in found.missing] == [
        (names[0], "the launcher ended with exit 255: no route"),
        (names[3], "the launcher was killed by signal 9 (SIGKILL), while the network was measured"),
    ]
    findings = found.findings
    assert findings is not None
    assert any(2 in (result.pair.client, result.pair.server) for result in findings.results[:2])
    assert (findings.slow_ports, findings.slow_links, findings.dead_links) == ((), (), ())
    assert (findings.unreachable_ports, findings.unreachable_hosts) == ((), ())
    way = route(found.topology, 0, 1)
    assert way.bandwidth_gb_per_s == pytest.approx(RATE_MBIT / 8000, rel=0.1)
    assert way.latency_us == pytest.approx(2 * DELAY_US, rel=0.2)


def _killing(
    hosts: NetworkNamespaces, host: int, after_round: int
) -> Callable[[str, int, int], None]:
    def on_progress(stage: str, done: int, _total: int) -> None:
        if (stage, done) == ("pairs", after_round):
            for pid in hosts.processes(host):
                os.kill(pid, signal.SIGKILL)

    return on_progress


@pytest.mark.long
def test_a_sound_cluster_is_no_finding_and_racks_become_leaf_switches(
    run_tuccl: Run, tmp_path: Path
) -> None:
    with NetworkNamespaces([[Interface()] for _ in range(4)]) as hosts:
        names = [hosts.namespace(host) for host in range(4)]
        (tmp_path / "racks").write_text(
            f"{names[0]} rack-a\n{names[1]} rack-a\n{names[2]} rack-b\n{names[3]} rack-b\n"
        )
        found = probe(run_tuccl, tmp_path, hosts, "--no-network", "--rack-map", "racks")
    assert found.code == 0, found.errors
    network = [link for link in found.topology.links if link.kind is LinkKind.NETWORK]
    assert network
    assert Provenance.MEASURED not in {link.provenance for link in network}
    assert any("was not measured, as asked" in note for note in found.topology.notes)
    switches = {link.dst for link in network if "/" in link.src}
    assert len(switches) == 2
    assert len(found.route(0, 1).links) == 2
    assert len(found.route(0, 2).links) == 4


@pytest.mark.slow
def test_racks_are_learned_and_their_oversubscribed_uplink_is_measured(
    run_tuccl: Run, tmp_path: Path
) -> None:
    """Two racks of two hosts, joined by a cable of one host's rate and a delay of its own."""
    near, far = (Interface(rate_mbit=RATE_MBIT, rack=rack) for rack in (0, 1))
    cable = Interface(rate_mbit=RATE_MBIT, delay_us=3000)
    with NetworkNamespaces([[near], [near], [far], [far]], cable) as hosts:
        found = probe(run_tuccl, tmp_path, hosts)
        assert not hosts.processes()
    notes = "\n".join(found.topology.notes)
    assert found.code == 0, notes
    assert "2 racks, learned from latencies" in notes
    assert "the links between racks are the limit (congestion score 0." in notes
    assert len(found.route(0, 1).links) == len(found.route(2, 3).links) == 2
    across = found.route(1, 2).links
    assert len(across) == 4
    for uplink in across[1:3]:
        assert uplink.provenance is Provenance.MEASURED
        assert uplink.bandwidth_gb_per_s == pytest.approx(RATE_MBIT / 8000, rel=0.15)
        assert uplink.latency_us == pytest.approx(1500, rel=0.2)


@pytest.mark.long
def test_addresses_that_begin_alike_are_a_rack(run_tuccl: Run, tmp_path: Path) -> None:
    with NetworkNamespaces([[Interface()] for _ in range(4)]) as hosts:
        found = probe(run_tuccl, tmp_path, hosts, "--rack-prefix", "31", "--no-network")
    assert found.code == 0, found.errors
    assert len(found.route(1, 2).links) == 2, "10.1.0.2 and 10.1.0.3"
    assert len(found.route(0, 1).links) == len(found.route(2, 3).links) == 4


def test_a_prefix_that_is_none_is_one_line(run_tuccl: Run) -> None:
    refused = run_tuccl("probe", "--rack-prefix", "twentyfour")
    assert refused.returncode == 2
    assert "rack prefix 'twentyfour': give a length in bits, as 24" in refused.stderr
