"""What probing a large cluster's network costs and finds, on a simulated network with faults.

Per seed: measurements per NIC, rounds, seconds of planning and judging (without the simulated
measuring), how many of the injected slow NICs were named and how many others were blamed. With
--topology the findings are attached to a cluster of shipped machines and its fingerprint is taken.

    python scripts/probe_scale.py --nodes 1000 --nics 8 --slow 10 --seeds 5
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from probes.files.read import read_topology  # noqa: E402
from probes.files.shipped import shipped_machines  # noqa: E402
from probes.network.campaign.fabric import attach_network  # noqa: E402
from probes.network.campaign.findings import Findings  # noqa: E402
from probes.network.campaign.run import run_campaign  # noqa: E402
from probes.network.results import PairResult, PortPair  # noqa: E402
from probes.topology.graph import LinkKind, Topology  # noqa: E402
from probes.topology.replicate import Network, NetworkLayout, replicate  # noqa: E402
from tests.probes.network.simulated_network import SimulatedFaults, SimulatedNetwork  # noqa: E402


class TimedMeasure:
    """The network's answers, and what simulating them took."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.network = network
        self.seconds = 0.0

    def __call__(self, pairs: Sequence[PortPair]) -> list[PairResult]:
        """Measure one round."""
        started = time.process_time()
        results = self.network.measure(pairs)
        self.seconds += time.process_time() - started
        return results


def main() -> None:
    """Simulate, probe, compare."""
    given = arguments()
    print(
        "seed  measured  per NIC  rounds  run time  planning  slow named  others blamed  "
        "dead named  transient"
    )
    for seed in range(given.seeds):
        network = faulty_network(given, seed)
        measure = TimedMeasure(network)
        started = time.process_time()
        findings = run_campaign(network.ports, measure, conflicts=network.uplinks())
        planning_s = time.process_time() - started - measure.seconds
        slow = {
            (network.ports[s.port].host, network.ports[s.port].nic) for s in findings.slow_ports
        }
        dead = {(network.ports[i].host, network.ports[i].nic) for i in findings.unreachable_ports}
        bad = network.faults.slow_ports
        print(
            f"{seed:4}  {len(findings.results):8,}  {max(network.measurements):7}  "
            f"{findings.rounds:6}  {findings.rounds * given.seconds_per_round:6.0f} s  "
            f"{planning_s:6.1f} s  {len(slow & bad):4} of {len(bad):2}  {len(slow - bad):13}  "
            f"{len(dead & network.faults.dead_ports):4} of {len(network.faults.dead_ports):2}  "
            f"{len(findings.recovered):9}"
        )
        if given.topology and seed == 0:
            attach(given.nodes, network, findings)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--nics", type=int, default=8)
    parser.add_argument("--slow", type=int, default=10)
    parser.add_argument("--dead", type=int, default=2)
    parser.add_argument("--busy", type=int, default=2, help="NICs that are slow for one round")
    parser.add_argument("--noise", type=float, default=0.03)
    parser.add_argument("--nics-per-uplink", type=int, default=1)
    parser.add_argument("--uplink", type=float, default=math.inf, help="GB/s of a shared PCIe link")
    parser.add_argument("--layout", choices=[v.value for v in NetworkLayout], default="rails")
    parser.add_argument("--no-racks", action="store_true", help="racks are not known")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds-per-round", type=float, default=3.0)
    parser.add_argument("--topology", action="store_true", help="also build it (8 NICs)")
    return parser.parse_args()


def faulty_network(given: argparse.Namespace, seed: int) -> SimulatedNetwork:
    """A network with distinct faulty NICs."""
    chance = random.Random(seed)  # noqa: S311 - faults, not secrets
    every = [(host, nic) for host in range(given.nodes) for nic in range(given.nics)]
    picked = chance.sample(every, given.slow + given.dead + given.busy)
    faults = SimulatedFaults(
        slow_ports=frozenset(picked[: given.slow]),
        dead_ports=frozenset(picked[given.slow : given.slow + given.dead]),
        busy_ports=frozenset(picked[given.slow + given.dead :]),
        busy_rounds=4,
    )
    return SimulatedNetwork(
        given.nodes,
        given.nics,
        seed=seed,
        layout=NetworkLayout(given.layout),
        has_racks=not given.no_racks,
        noise=given.noise,
        nics_per_uplink=given.nics_per_uplink,
        uplink_gb_per_s=given.uplink,
        faults=faults,
    )


def attach(nodes: int, network: SimulatedNetwork, findings: Findings) -> None:
    """Time the topology that comes of it."""
    cluster = hosts_alone(nodes)
    started = time.process_time()
    probed = attach_network(cluster, network.ports, findings)
    attached = time.process_time()
    identity = probed.fingerprint()
    ended = time.process_time()
    print(
        f"      topology: {len(probed.devices):,} devices, {len(probed.links):,} links attached in "
        f"{attached - started:.1f} s; fingerprint {identity} in {ended - attached:.1f} s"
    )


def hosts_alone(nodes: int) -> Topology:
    """Hosts with 8 GPUs and 8 NICs, no network between them."""
    machine = read_topology(shipped_machines()["a100-8gpu-8nic"])
    cluster = replicate(machine, nodes, Network(1.7))
    return replace(
        cluster,
        devices=tuple(device for device in cluster.devices if device.node >= 0),
        links=tuple(link for link in cluster.links if link.kind is not LinkKind.NETWORK),
    )


if __name__ == "__main__":
    main()
