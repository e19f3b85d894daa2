import random
import time

import pytest

from probes.network.campaign.run import run_campaign
from probes.network.ports import PortPair
from tests.probes.network.simulated_network import SimulatedFaults, SimulatedNetwork

pytestmark = pytest.mark.long


def faulty(nodes: int, slow: int, seed: int) -> SimulatedNetwork:
    """Eight rails, slow and dead NICs, a bad cable, and NICs that are busy for a while."""
    chance = random.Random(seed)
    every = [(host, nic) for host in range(nodes) for nic in range(8)]
    picked = chance.sample(every, slow + 4)
    faults = SimulatedFaults(
        slow_ports=frozenset(picked[:slow]),
        dead_ports=frozenset(picked[slow : slow + 2]),
        busy_ports=frozenset(picked[slow + 2 :]),
        busy_rounds=4,
    )
    return SimulatedNetwork(nodes, 8, seed, faults=faults)


def check(network: SimulatedNetwork) -> float:
    """Run a campaign and return its time in seconds, simulation included."""
    started = time.process_time()
    findings = run_campaign(network.ports, network.measure)
    seconds = time.process_time() - started
    named = {(network.ports[s.port].host, network.ports[s.port].nic) for s in findings.slow_ports}
    dead = {(network.ports[i].host, network.ports[i].nic) for i in findings.unreachable_ports}
    assert named == network.faults.slow_ports
    assert dead == network.faults.dead_ports
    assert not findings.slow_links
    assert max(network.measurements) <= 13
    assert min(network.measurements) >= 2
    assert len(findings.results) < 2.2 * len(network.ports)
    assert findings.rounds <= 22
    return seconds


@pytest.mark.parametrize("seed", range(4))
def test_a_hundred_nodes(seed: int) -> None:
    check(faulty(100, 10, seed))


def test_a_thousand_nodes_with_ten_slow_nics() -> None:
    assert check(faulty(1000, 10, 0)) < 10.0


def test_the_simulation_repeats_itself_and_refuses_two_uses_of_a_port() -> None:
    pairs = [PortPair(0, 8), PortPair(1, 9)]
    network, twin = faulty(20, 1, 5), faulty(20, 1, 5)
    assert network.ports == twin.ports
    assert network.measure(pairs) == twin.measure(pairs)
    assert network.measurements[:2] == [1, 1]
    with pytest.raises(ValueError, match="used twice"):
        network.measure([PortPair(0, 8), PortPair(8, 16)])
