"""The clusters of TuCCL's section IV-A, and schedules as its two sides have them.

Printed: V100 servers of four GPUs joined by six NVLinks each, one to three of them, NICs of 100
Gbit/s behind PCIe switches; A100 servers of eight GPUs at 300 GB/s, of which four or eight are
used, one or two of them, four NICs of 400 Gbit/s together, top-of-rack switches.

Not printed, and chosen: two NICs for a V100 server ("decreasing NIC connections from 8 to 2 per
node in three-server configurations" fits two NICs that see four), latencies, one switch for all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations

from lookup_tables.collective import Collective
from probes.topology.graph import Topology
from probes.topology.replicate import Network, NetworkLayout, replicate
from sketches.candidates import sketch_candidates
from sketches.sketch import Sketch
from synthesizer.experts import expert_algorithms
from synthesizer.plan.synthesize import synthesize
from tests.sketches.machines import host
from tuccl.schedules.candidates import Candidate
from tuccl.search.trials.config import SCHEDULE_PREFIX, Config
from tuccl.search.trials.space import Family, Space

OPERATIONS = (Collective.ALL_GATHER, Collective.ALL_REDUCE)
_NIC_GB_PER_S = 12.5
_NIC_US = 1.7
_V100_PAIR_GB_PER_S = 50.0
"""Six NVLinks of 25 GB/s, two to each of three peers."""
SYNTHESIZED_BYTES = 1 << 20
"""Size that schedules are synthesized for; a search for each size takes a minute and more."""


def clusters() -> tuple[Topology, ...]:
    """Return the clusters of Figures 3 and 4, smallest first."""
    mesh = dict.fromkeys(combinations(range(4), 2), _V100_PAIR_GB_PER_S)
    v100 = host(4, 2, mesh=mesh, pcie_gb_per_s=_NIC_GB_PER_S, capability=70)
    a100 = {gpus: host(gpus, 4, capability=80) for gpus in (4, 8)}
    return (
        *(_cluster("V100", v100, hosts) for hosts in (1, 2, 3)),
        *(_cluster("A100", a100[gpus], hosts) for hosts in (1, 2) for gpus in (4, 8)),
    )


def _cluster(gpu: str, one: Topology, hosts: int) -> Topology:
    network = Network(_NIC_US, NetworkLayout.FABRIC, _NIC_GB_PER_S)
    whole = replicate(one, hosts, network)
    return replace(whole, name=f"{hosts} x {len(one.gpus)} {gpu}")


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
        if algorithm.name in (f"{operation}_all_pairs", f"{operation}_all_pairs_two_phase")
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
