"""The clusters of TuCCL's section IV-A, and schedules as its two sides have them.

Printed: V100 servers of four GPUs joined by six NVLinks each, one to three of them, NICs of 100
Gbit/s behind PCIe switches; A100 servers of eight GPUs at 300 GB/s, of which four or eight are
used, one or two of them, four NICs of 400 Gbit/s together, top-of-rack switches.

Not printed, and chosen: two NICs for a V100 server ("decreasing NIC connections from 8 to 2 per
node in three-server configurations" fits two NICs that see four), latencies, one switch for all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from lookup_tables.collective import Collective
from probes.topology.graph import (
    NETWORK_NODE,
    Device,
    DeviceKind,
    Link,
    LinkKind,
    Provenance,
    Topology,
)
from sketches.candidates import sketch_candidates
from sketches.sketch import Sketch
from synthesizer.experts import expert_algorithms
from synthesizer.plan.synthesize import synthesize
from tuccl.schedules.candidates import Candidate
from tuccl.search.trials.config import SCHEDULE_PREFIX, Config
from tuccl.search.trials.space import Family, Space

OPERATIONS = (Collective.ALL_GATHER, Collective.ALL_REDUCE)
_NIC_GB_PER_S = 12.5
_NIC_US = 0.85
_NVLINK_US = 0.7
_V100_PAIR_GB_PER_S = 50.0
"""Six NVLinks of 25 GB/s, two to each of three peers."""
_A100_GB_PER_S = 300.0
_A100_PCIE_GB_PER_S = 24.0
SYNTHESIZED_BYTES = 1 << 20
"""Size that schedules are synthesized for; a search for each size takes a minute and more."""

_Cable = tuple[str, str, LinkKind, float, float]


def clusters() -> tuple[Topology, ...]:
    """Return the clusters of Figures 3 and 4, smallest first."""
    v100 = tuple(_cluster("V100", hosts, 4, nics=2) for hosts in (1, 2, 3))
    a100 = tuple(
        _cluster("A100", hosts, gpus, nics=4) for hosts, gpus in ((1, 4), (1, 8), (2, 4), (2, 8))
    )
    return (*v100, *a100)


def _cluster(gpu: str, hosts: int, gpus: int, nics: int) -> Topology:
    devices = [Device("fabric", DeviceKind.NETWORK_SWITCH, NETWORK_NODE)]
    links: list[Link] = []
    for host in range(hosts):
        names = [f"n{host}g{index}" for index in range(gpus)]
        capability = 70 if gpu == "V100" else 80
        devices += [
            Device(name, DeviceKind.GPU, host, index, compute_capability=capability)
            for index, name in enumerate(names)
        ]
        devices += [Device(f"n{host}nic{i}", DeviceKind.NIC, host, i) for i in range(nics)]
        if gpu == "A100":
            devices.append(Device(f"n{host}nvs", DeviceKind.NVSWITCH, host))
        inside = _v100_cables(names) if gpu == "V100" else _a100_cables(names, f"n{host}nvs")
        pcie = _NIC_GB_PER_S if gpu == "V100" else _A100_PCIE_GB_PER_S
        outside: list[_Cable] = [
            (name, f"n{host}nic{index * nics // gpus}", LinkKind.PCIE, pcie, 0.0)
            for index, name in enumerate(names)
        ]
        outside += [
            (f"n{host}nic{i}", "fabric", LinkKind.NETWORK, _NIC_GB_PER_S, _NIC_US)
            for i in range(nics)
        ]
        links += [
            Link(a, b, kind, gb_per_s, latency_us, Provenance.SPEC)
            for src, dst, kind, gb_per_s, latency_us in (*inside, *outside)
            for a, b in ((src, dst), (dst, src))
        ]
    return Topology(f"{hosts} x {gpus} {gpu}", tuple(devices), tuple(links))


def _v100_cables(gpus: Iterable[str]) -> list[_Cable]:
    return [
        (a, b, LinkKind.NVLINK, _V100_PAIR_GB_PER_S, _NVLINK_US) for a, b in combinations(gpus, 2)
    ]


def _a100_cables(gpus: Iterable[str], switch: str) -> list[_Cable]:
    return [(gpu, switch, LinkKind.NVLINK, _A100_GB_PER_S, _NVLINK_US / 2) for gpu in gpus]


@dataclass(frozen=True, slots=True)
class Schedules:
    """Schedules of one operation on one cluster."""

    default: Candidate
    """On the all-to-all sketch every block goes straight to every GPU, as a synthesizer routes
    whose shortest paths have one hop there (TACCL); all_reduce is both halves."""
    sketched: tuple[Candidate, ...]
    """Synthesized on TuCCL's sketches."""
    mesh: Sketch
    """The all-to-all sketch."""

    @property
    def all(self) -> dict[str, Candidate]:
        """All of them by content hash."""
        return {each.content_hash: each for each in (self.default, *self.sketched)}


def schedules_of(topology: Topology, operation: Collective) -> Schedules:
    """Synthesize on every sketch; half a minute of one core for 16 GPUs."""
    sketches = {sketch.name: sketch for sketch in sketch_candidates(topology)}
    mesh = sketches.get("full_mesh", next(iter(sketches.values())))
    (straight,) = (
        algorithm
        for algorithm in expert_algorithms(operation, mesh)
        if algorithm.name.endswith(("all_gather_all_pairs", "all_pairs_two_phase"))
    )
    found: dict[str, Candidate] = {}
    for sketch in sketches.values():
        algorithm = synthesize(operation, sketch, SYNTHESIZED_BYTES).algorithm
        candidate = Candidate(algorithm, sketch, sketch.name)
        found.setdefault(candidate.content_hash, candidate)
    return Schedules(Candidate(straight, mesh, "default"), tuple(found.values()), mesh)


DEFAULT = Config("", "Simple", 1, 512, 4 << 20)
"""C0 of Table III."""
_PROTOCOLS = ("LL", "LL128", "Simple")
_CHANNELS = tuple(2**i for i in range(5))
"""Table IV has 2 to 16, its text 1 to 8, and C0 has 1."""
_THREADS = tuple(32 * i for i in range(1, 21))
_BUFFERS = tuple(128 * 2**i for i in range(1, 16))


def configured(candidate: Candidate, config: Config) -> Config:
    """Return a schedule with the parameters of a configuration."""
    return Config(
        f"{SCHEDULE_PREFIX}{candidate.content_hash}",
        config.protocol,
        config.nchannels,
        config.nthreads,
        config.buffer_bytes,
    )


def table_iv(candidates: Iterable[Candidate]) -> Space:
    """Return equation 1's space, with Table IV's values, for each of some schedules."""
    return Space(
        "Table IV",
        tuple(
            Family(
                f"{SCHEDULE_PREFIX}{candidate.content_hash}",
                protocol,
                _CHANNELS,
                _THREADS,
                _BUFFERS,
            )
            for candidate in candidates
            for protocol in _PROTOCOLS
        ),
    )
