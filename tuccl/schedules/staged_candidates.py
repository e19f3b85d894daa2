"""Candidates for the executor across hosts that are no plans: schedules in stages and rounds.

Plans of phases need nodes of equal size, and take it that every GPU has a NIC. Where nodes differ,
or have fewer NICs than GPUs, expert algorithms of the machine, and those over the gateways of its
sketches, are cut (`synthesizer.programs.cutting`). Those are tried at a size that the model of
stages and rounds takes to be near the fastest, and with several lanes where it takes these to be
faster; on nodes of different sizes, where there are no plans, also the one with the fewest rounds
at every size, since no round has been measured on such nodes yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from math import inf, log
from types import MappingProxyType

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.program_header import MOST_RANKS
from lookup_tables.table import NcclProtocol
from probes.topology.graph import Topology
from sketches.candidates import sketch_candidates
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import TimeBound, time_bound
from synthesizer.experts import beyond_experts, expert_algorithms
from synthesizer.experts.gateways import gateway_programs
from synthesizer.ir.algorithm import Algorithm
from synthesizer.lower.lowering import lower
from synthesizer.programs.phases import has_scratch_for
from tuccl.errors import NoProgramError
from tuccl.models.across_hosts.staged_model import StagedModel
from tuccl.models.executor_model import KernelParameters
from tuccl.schedules.call_slices import LANES, staged_slice_sizes
from tuccl.schedules.candidates import MOST_PER_SIZE, NEAR, Candidate, Promise
from tuccl.search.trials.presets import phased_families

OPERATIONS = frozenset(each for each in COLLECTIVES if not each.has_root)
"""Operations that have such candidates."""
MOST_STEPS = 20_000
"""Most steps of an algorithm that is cut and proved: seconds of work."""
_ALGORITHMS_SHARE = 0.6
"""Share of the time for making algorithms; the rest is cutting them."""
_MOST_RANKS_OF_SKETCHES = 32
"""Most ranks for which algorithms of sketches are made beside the machine's: seconds as well."""


@dataclass(frozen=True)
class _Cut:
    """An algorithm with its form in stages and rounds, and its modelled times."""

    candidate: Candidate
    rounds: int
    times_us: Mapping[int, float]
    """Time under the best parameters, of the sizes that the executor runs."""
    wires_us: Mapping[int, float]

    @property
    def by_rounds(self) -> tuple[int, float]:
        """Key of an order: the fewest rounds first, of these the fastest on all sizes together."""
        return self.rounds, sum(map(log, self.times_us.values())) or inf


def node_sizes_of(machine: Sketch) -> tuple[int, ...]:
    """Return the ranks of each node; nothing where a node's ranks do not follow one another."""
    runs = [(node, len(list(ranks))) for node, ranks in groupby(machine.node_of_rank)]
    if len({node for node, _ in runs}) < len(runs):
        return ()
    return tuple(size for _, size in runs)


def staged_candidates(
    operation: Collective,
    topology: Topology,
    machine: Sketch,
    sizes_bytes: Sequence[int],
    rivals_us: Mapping[int, float] = MappingProxyType({}),
    *,
    ll128: bool = True,
    progress: Callable[[float], None] = lambda _share: None,
) -> tuple[Candidate, ...]:
    """Return the candidates of an operation, each with the sizes that it is for.

    Args:
        operation: The operation; some have none.
        topology: The machine, of several nodes.
        machine: The whole machine, unpruned.
        sizes_bytes: Sizes that are tuned.
        rivals_us: Modelled time of the fastest plan by size, where there are plans.
        ll128: Whether the links keep 128 bytes in order, which LL128 needs.
        progress: Called with the share of the work that is done.
    """
    sizes = node_sizes_of(machine)
    if operation not in OPERATIONS or not sizes or max(sizes) > MOST_RANKS:
        return ()
    collective = operation
    algorithms = list(_algorithms(collective, topology, machine))
    cuts: list[_Cut] = []
    for number, algorithm in enumerate(algorithms):
        progress(_ALGORITHMS_SHARE + (1.0 - _ALGORITHMS_SHARE) * number / len(algorithms))
        cuts += _cuts(algorithm, topology, machine, sizes_bytes, ll128=ll128)
    promised: dict[int, list[int]] = {}
    for size_bytes in sizes_bytes:
        for number in _near_fastest(cuts, size_bytes, rivals_us.get(size_bytes, inf)):
            promised.setdefault(number, []).append(size_bytes)
    if cuts and not rivals_us:
        one_lane = range(0, len(cuts), 1 + len(LANES))
        fewest = min(one_lane, key=lambda number: cuts[number].by_rounds)
        promised = {fewest: list(cuts[fewest].times_us)} | {
            number: of for number, of in promised.items() if number != fewest
        }
    bound = time_bound(collective, machine)
    found: dict[str, Candidate] = {}
    for number, promising in promised.items():
        candidate = _promising(cuts[number], bound, promising)
        try:
            found.setdefault(candidate.content_hash, candidate)
        except NoProgramError:
            continue
    return tuple(found.values())


def _algorithms(collective: Collective, topology: Topology, machine: Sketch) -> Iterator[Algorithm]:
    """Yield the expert algorithms of the machine, and those over the gateways of its sketches."""
    found = [] if beyond_experts(collective, machine) else expert_algorithms(collective, machine)
    seen: set[str] = set()
    for algorithm in chain(found, _over_gateways(collective, topology, machine)):
        content_hash = algorithm.content_hash()
        if algorithm.step_count <= MOST_STEPS and content_hash not in seen:
            seen.add(content_hash)
            yield algorithm


def _over_gateways(
    collective: Collective, topology: Topology, machine: Sketch
) -> Iterator[Algorithm]:
    """Yield the algorithms over gateways of sketches, which have fewer of them than the machine."""
    if machine.ranks > _MOST_RANKS_OF_SKETCHES:
        return
    for sketch in sketch_candidates(topology):
        for name, program in gateway_programs(collective, sketch, root=0):
            yield lower(program, name)


def _cuts(
    algorithm: Algorithm,
    topology: Topology,
    machine: Sketch,
    sizes_bytes: Iterable[int],
    *,
    ll128: bool,
) -> Iterator[_Cut]:
    """Yield an algorithm's form in stages and rounds with each number of lanes, if it has one."""
    sizes = node_sizes_of(machine)
    candidate = Candidate(algorithm, machine, "expert in rounds", node_sizes=sizes)
    try:
        staged = candidate.phased
    except NoProgramError:
        return
    if staged is None:
        return
    model = StagedModel(staged, topology)
    fitting = [size_bytes for size_bytes in sizes_bytes if has_scratch_for(staged, size_bytes)]
    wires_us = {size_bytes: model.wires_us(size_bytes) for size_bytes in fitting}
    for lanes in (1, *LANES):
        times_us = {
            size_bytes: min(
                model.time_us(size_bytes, kernels, slice_bytes, lanes)
                for kernels, slice_bytes in parameters
            )
            for size_bytes in fitting
            if (parameters := list(_parameters(size_bytes, lanes, ll128=ll128)))
        }
        laned = replace(candidate, round_lanes=lanes)
        yield _Cut(laned, len(staged.rounds), times_us, wires_us)


def _parameters(
    size_bytes: int, lanes: int, *, ll128: bool
) -> Iterator[tuple[KernelParameters, int]]:
    """Yield the slices that a search may choose, and the kernels that the model has fastest."""
    slices = staged_slice_sizes(size_bytes, lanes)
    for family in phased_families("", size_bytes, slices, in_rounds=True, ll128=ll128):
        kernels = KernelParameters(
            NcclProtocol(family.protocol), family.nchannels[-1], family.nthreads[-1]
        )
        yield from ((kernels, slice_bytes) for slice_bytes in slices)


def _near_fastest(cuts: Sequence[_Cut], size_bytes: int, rival_us: float) -> list[int]:
    """Return the few that the model takes to be near the fastest.

    They have one lane; then come those with more, one for each number of lanes, as long as each is
    faster than all with fewer. A machine may not have the cores for more lanes.
    """
    of_size = [number for number, each in enumerate(cuts) if size_bytes in each.times_us]
    order = sorted(of_size, key=lambda number: (cuts[number].times_us[size_bytes], number))
    found: list[int] = []
    best_us = inf
    for lanes in (1, *LANES):
        own = [number for number in order if cuts[number].candidate.lanes == lanes]
        own_us = [cuts[number].times_us[size_bytes] for number in own]
        limit_us = NEAR * min([rival_us, *own_us])
        if own and own_us[0] < best_us:
            most = MOST_PER_SIZE if lanes == 1 else 1
            found += [n for n, us in zip(own[:most], own_us, strict=False) if us <= limit_us]
            best_us = own_us[0]
    return found


def _promising(found: _Cut, bound: TimeBound, sizes_bytes: Iterable[int]) -> Candidate:
    promises = []
    for size_bytes in sizes_bytes:
        bound_us = bound.time_us(size_bytes)
        promises.append(Promise(size_bytes, max(bound_us, found.wires_us[size_bytes]), bound_us))
    return replace(found.candidate, promises=tuple(promises))
