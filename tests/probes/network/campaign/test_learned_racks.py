"""Racks that nobody names, on simulated networks of hosts in racks."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.network.campaign.fabric import attach_network
from probes.network.campaign.findings import Findings
from probes.network.campaign.outliers import Quantity
from probes.network.campaign.run import run_campaign
from probes.network.campaign.sampling import MORE_FOR_RACKS, PER_PORT_LIMIT
from probes.network.ports import PairResult, PortPair
from tests.probes.network.clusters import bare_hosts
from tests.probes.network.simulated_network import SimulatedFaults, SimulatedNetwork


def hosts_in(
    racks: Sequence[int],
    nics: int = 1,
    seed: int = 0,
    *,
    noise: float = 0.03,
    rack_gb_per_s: float = math.inf,
    faults: SimulatedFaults | None = None,
) -> SimulatedNetwork:
    """One host for each number of a rack; 3 us inside racks, 5 us between."""
    network = SimulatedNetwork(
        len(racks), nics, seed, line_rate_gb_per_s=25.0, same_rack_gb_per_s=24.4,
        other_rack_gb_per_s=24.4, noise=noise, rack_gb_per_s=rack_gb_per_s,
        faults=faults or SimulatedFaults(),
    )  # fmt: skip
    network.ports = tuple(replace(p, rack=f"r{racks[p.host]}") for p in network.ports)
    return network


def unaware(network: SimulatedNetwork) -> Findings:
    """Measure without knowledge of the racks."""
    ports = tuple(replace(port, rack="") for port in network.ports)
    return run_campaign(ports, network.measure)


def partition(findings: Findings) -> set[frozenset[int]]:
    found: dict[str, set[int]] = {}
    for port in findings.groups.ports:
        found.setdefault(port.rack, set()).add(port.host)
    return {frozenset(hosts) for hosts in found.values()}


def racks_of(racks: Sequence[int]) -> set[frozenset[int]]:
    return {
        frozenset(host for host, rack in enumerate(racks) if rack == wanted)
        for wanted in set(racks)
    }


@pytest.mark.parametrize(
    "racks",
    [
        (0, 0, 1, 1),
        (0, 1, 0, 1),
        (0, 0, 0, 0, 1, 1, 1, 1),
        (0, 1) * 6,
        (0, 0, 0, 1, 1, 1, 2, 2, 2),
        (0, 0, 1, 1, 1, 1, 0, 0),
    ],
)
@pytest.mark.parametrize("nics", [1, 4])
def test_racks_are_found_whatever_the_order_of_their_hosts(
    racks: tuple[int, ...], nics: int
) -> None:
    network = hosts_in(racks, nics)
    findings = unaware(network)
    assert partition(findings) == racks_of(racks)
    (note,) = [note for note in findings.notes if "learned from latencies" in note]
    assert note.startswith(f"{len(set(racks))} racks, ")
    assert not findings.slow_ports
    assert not findings.slow_links
    assert max(network.measurements) <= PER_PORT_LIMIT + MORE_FOR_RACKS + 5


@pytest.mark.parametrize("gb_per_s", [1e6, 50.0])
def test_a_learned_rack_is_as_good_as_a_named_one(gb_per_s: float) -> None:
    network = hosts_in((0, 0, 0, 0, 1, 1, 1, 1), noise=0.0, rack_gb_per_s=gb_per_s)
    learned, named = unaware(network), run_campaign(network.ports, network.measure)
    assert [up.is_contended for up in learned.uplinks] == [up.is_contended for up in named.uplinks]
    hosts = bare_hosts(network.ports)
    assert attach_network(hosts, learned).fingerprint() == (
        attach_network(hosts, named).fingerprint()
    )
    figures = {f.median for f in learned.figures if f.quantity is Quantity.LATENCY}
    assert figures == {3.0, 5.0}, "in classes of their own"


@given(
    seed=st.integers(0, 10_000),
    hosts=st.integers(2, 24),
    noise=st.sampled_from([0.0, 0.03, 0.1, 0.3]),
    late=st.booleans(),
)
def test_noise_alone_never_makes_racks(seed: int, hosts: int, noise: float, late: bool) -> None:
    faults = SimulatedFaults(late_ports=frozenset({(0, 0)} if late else ()))
    findings = unaware(hosts_in((0,) * hosts, 1, seed, noise=noise, faults=faults))
    assert set(findings.groups.racks) == {""}
    assert not findings.uplinks


@given(seed=st.integers(0, 10_000), racks=st.lists(st.integers(0, 2), min_size=4, max_size=24))
def test_no_rack_has_hosts_of_two(seed: int, racks: list[int]) -> None:
    """In a mixed order a rack may be found in parts, of which no pair was measured."""
    found = partition(unaware(hosts_in(racks, 1, seed)))
    true = racks_of(racks)
    assert found == {frozenset(range(len(racks)))} or all(
        any(part <= whole for whole in true) for part in found
    )


def test_what_further_pairs_do_not_confirm_is_forgotten() -> None:
    """The first measurements between hosts 0 to 3 and the others are late, further ones are not."""
    network = hosts_in((0,) * 8, noise=0.0)
    ports = tuple(replace(port, rack="") for port in network.ports)
    asked: list[PortPair] = []

    def measure(pairs: Sequence[PortPair]) -> list[PairResult]:
        results = network.measure(pairs)
        early = len(asked) < 14
        asked.extend(pairs)
        return [
            replace(result, latency_us=9.0)
            if early and (result.pair.client < 4) != (result.pair.server < 4)
            else result
            for result in results
        ]

    findings = run_campaign(ports, measure)
    assert set(findings.groups.racks) == {""}
    assert "Latencies looked like those of 2 racks, but not when more pairs" in "\n".join(
        findings.notes
    )


def test_named_racks_are_not_learned_anew() -> None:
    network = hosts_in((0, 0, 0, 0, 1, 1, 1, 1))
    ports = tuple(replace(port, rack="all") for port in network.ports)
    assert set(run_campaign(ports, network.measure).groups.racks) == {"all"}


@pytest.mark.long
def test_a_thousand_hosts_in_forty_racks_cost_a_few_measurements_each() -> None:
    racks = [host // 25 for host in range(1000)]
    network = hosts_in(racks, 1, random.Random(1).randint(0, 9))
    findings = unaware(network)
    assert partition(findings) == racks_of(racks)
    assert max(network.measurements) <= PER_PORT_LIMIT + MORE_FOR_RACKS + 5
    assert sum(network.measurements) / 2 < 5 * 1000
