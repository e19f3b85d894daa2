"""Candidates for the executor across hosts: plans, and schedules in stages and rounds.

Plans of phases need nodes of equal size, and give every rail the same share of the network. What
else may be faster comes from the sketches of the machine: schedules of integer programs, trees and
exchanges on each guided sketch, and the expert algorithms of sketches and machine. All are cut into
stages and rounds (`synthesizer.programs.cutting`). Slices of a call follow one another through the
rounds, so schedules are searched with few chunks, of one piece each: pieces are slices' work.

A schedule is tried at a size that the model of stages and rounds takes to be near the fastest, and
with several lanes where it takes these to be faster. Where there are no plans, also the one with
the fewest rounds is tried at every size: no round has been measured on such nodes yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from math import inf, log

from lookup_tables.collective import Collective
from lookup_tables.program_header import MOST_RANKS
from lookup_tables.table import NcclProtocol
from probes.topology.graph import Topology
from sketches.candidates import sketch_candidates
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import TimeBound, time_bound
from synthesizer.experts import beyond_experts, fewest_steps
from synthesizer.programs.phases import has_scratch_for
from tuccl.crew.pool import IN_PROCESS, Workers
from tuccl.errors import InfeasibleError, NoProgramError
from tuccl.models.across_hosts.gpu_ways import gpu_ways, with_ways
from tuccl.models.across_hosts.grid_figures import grid_figures
from tuccl.models.across_hosts.staged_model import StagedModel
from tuccl.models.executor_model import KernelParameters
from tuccl.models.figures import uses_sockets
from tuccl.schedules.call_slices import LANES, staged_slice_sizes
from tuccl.schedules.candidates import MOST_PER_SIZE, NEAR, Candidate, Promise, origin_of
from tuccl.schedules.guidance import guided, worth_trying
from tuccl.schedules.making import Made, Stopwatch, Wanted, make_schedules
from tuccl.schedules.phased_candidates import (
    fastest_us,
    phased_candidates,
    sizes_short_of_bound,
)
from tuccl.search.trials.presets import phased_families

MOST_STEPS = 50_000
"""Most steps of an algorithm that is cut and proved: seconds of work."""
_TREES = (1, 2, 4, 8)
"""Numbers of trees of each source, or paths of each pair, that are searched with."""
_MOST_RANKS_OF_SKETCHES = 32
"""Most ranks for which schedules of sketches are made beside the machine's experts."""


@dataclass(frozen=True)
class RoundsRequest:
    """What schedules in stages and rounds are for."""

    operation: Collective
    topology: Topology
    """The machine, of several nodes."""
    machine: Sketch
    """The whole machine, unpruned."""
    sizes_bytes: Sequence[int]
    """Sizes that are tuned."""
    rivals_us: Mapping[int, float] = field(default_factory=dict)
    """Modelled time of the fastest plan by size, where there are plans."""
    searched_bytes: Sequence[int] = ()
    """Sizes at which plans leave something to gain; a search is for the largest one."""
    search_s: float = 10.0
    """Limit of the solver's work in one search, in seconds of an idle core."""
    ll128: bool = True
    """Whether the links keep 128 bytes in order, which LL128 needs."""


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


def candidates_across_hosts(
    request: RoundsRequest,
    progress: Callable[[float], None] = lambda _share: None,
    workers: Workers = IN_PROCESS,
) -> tuple[Candidate, ...]:
    """Return plans of phases for equal nodes, and schedules in rounds where those may win.

    Args:
        request: Operation, machine and sizes; what it says of plans is found here.
        progress: Called with the share of the work that is done.
        workers: Processes that make schedules; their number does not change the result.

    Raises:
        HostError: A worker was killed.
        ScheduleError: No solver works.
    """
    topology, sizes_bytes = request.topology, request.sizes_bytes
    if not topology.ranks_per_node:
        request = replace(request, searched_bytes=sizes_bytes)
        return staged_candidates(request, progress, workers)
    grid = grid_figures(topology)
    plans = phased_candidates(request.operation, grid, request.machine, sizes_bytes)
    searched_bytes = sizes_short_of_bound(plans, grid, sizes_bytes)
    if plans and not searched_bytes and grid.machine.nics_per_node >= topology.ranks_per_node:
        return plans
    request = replace(
        request,
        rivals_us=fastest_us(plans, grid, sizes_bytes, ll128=request.ll128),
        searched_bytes=searched_bytes,
    )
    return (*plans, *staged_candidates(request, progress, workers))


def staged_candidates(
    request: RoundsRequest,
    progress: Callable[[float], None] = lambda _share: None,
    workers: Workers = IN_PROCESS,
) -> tuple[Candidate, ...]:
    """Return the candidates of an operation, each with the sizes that it is for.

    Args:
        request: Operation, machine and sizes.
        progress: Called with the share of the work that is done.
        workers: Processes that make schedules; their number does not change the result.

    Raises:
        HostError: A worker was killed.
        ScheduleError: No solver works.
    """
    sizes = node_sizes_of(request.machine)
    if not sizes or max(sizes) > MOST_RANKS:
        return ()
    sizes_bytes, rivals_us = request.sizes_bytes, request.rivals_us
    cuts = _made_cuts(request, progress, workers)
    near = partial(_near_fastest, cuts, all_lanes=uses_sockets(request.topology))
    promised: dict[int, list[int]] = {}
    for size_bytes in sizes_bytes:
        for number in near(size_bytes, rivals_us.get(size_bytes, inf)):
            promised.setdefault(number, []).append(size_bytes)
    if cuts and not rivals_us:
        one_lane = range(0, len(cuts), 1 + len(LANES))
        fewest = min(one_lane, key=lambda number: cuts[number].by_rounds)
        promised = {fewest: list(cuts[fewest].times_us)} | {
            number: of for number, of in promised.items() if number != fewest
        }
    bound = time_bound(request.operation, request.machine)
    found: dict[str, Candidate] = {}
    for number, promising in promised.items():
        candidate = _promising(cuts[number], bound, promising)
        try:
            found.setdefault(candidate.content_hash, candidate)
        except NoProgramError:
            continue
    return tuple(found.values())


def _made_cuts(
    request: RoundsRequest, progress: Callable[[float], None], workers: Workers
) -> list[_Cut]:
    """Return the forms in stages and rounds of experts and of searched schedules, each once."""
    operation, machine = request.operation, request.machine
    sketches: Sequence[Sketch] = ()
    if machine.ranks <= _MOST_RANKS_OF_SKETCHES:
        ways = gpu_ways(request.topology)
        routed = [with_ways(sketch, ways) for sketch in sketch_candidates(request.topology)]
        every = guided([operation], routed)
        sketches, _ = worth_trying(operation, every, request.sizes_bytes)
    take = partial(_taken, request)
    wanted = Wanted(operation, request.searched_bytes[-1:], request.search_s, trees=_TREES)
    is_beyond = beyond_experts(operation, machine) or fewest_steps(operation, machine) > MOST_STEPS
    experts = [] if is_beyond else [machine]
    made = make_schedules(
        replace(wanted, sizes_bytes=()), experts, take, lambda _done, _share: None, workers
    )
    made.add(make_schedules(wanted, sketches, take, lambda _, share: progress(share), workers))
    for failure in made.failures:
        if not isinstance(failure, InfeasibleError):
            raise failure
    found: dict[str, tuple[_Cut, ...]] = {}
    for cuts in filter(None, made.taken):
        found.setdefault(cuts[0].candidate.steps.content_hash(), cuts)
    return [each for cuts in found.values() for each in cuts]


def _taken(request: RoundsRequest, made: Made, _watch: Stopwatch) -> tuple[_Cut, ...] | None:
    if made.algorithm.step_count > MOST_STEPS:
        return None
    return tuple(_cuts(request, made))


def _cuts(request: RoundsRequest, made: Made) -> Iterator[_Cut]:
    """Yield a schedule's form in stages and rounds with each number of lanes, if it has one."""
    machine, sizes_bytes = request.machine, request.sizes_bytes
    candidate = Candidate(
        made.algorithm,
        machine,
        f"{origin_of(made)}, in rounds",
        node_sizes=node_sizes_of(machine),
    )
    try:
        staged = candidate.phased
    except NoProgramError:
        return
    if staged is None:
        return
    model = StagedModel(staged, request.topology)
    fitting = [size_bytes for size_bytes in sizes_bytes if has_scratch_for(staged, size_bytes)]
    wires_us = {size_bytes: model.wires_us(size_bytes) for size_bytes in fitting}
    for lanes in (1, *LANES):
        times_us = {
            size_bytes: min(
                model.time_us(size_bytes, kernels, slice_bytes, lanes)
                for kernels, slice_bytes in parameters
            )
            for size_bytes in fitting
            if (parameters := list(_parameters(size_bytes, lanes, ll128=request.ll128)))
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


def _near_fastest(
    cuts: Sequence[_Cut], size_bytes: int, rival_us: float, *, all_lanes: bool
) -> list[int]:
    """Return the few that the model takes to be near the fastest.

    They have one lane; then come those with more, one for each number of lanes, as long as each is
    faster than all with fewer. Over TCP each number has one, as plans have: a thread of NCCL moves
    messages of sends and receives at less than half of its rate for collectives, and NICs of which
    nobody knows the speed are faster than the model takes them to be. A machine may not have the
    cores for more lanes.
    """
    of_size = [number for number, each in enumerate(cuts) if size_bytes in each.times_us]
    order = sorted(of_size, key=lambda number: (cuts[number].times_us[size_bytes], number))
    found: list[int] = []
    best_us = inf
    for lanes in (1, *LANES):
        own = [number for number in order if cuts[number].candidate.lanes == lanes]
        own_us = [cuts[number].times_us[size_bytes] for number in own]
        limit_us = NEAR * min([rival_us, *own_us])
        if own and (all_lanes or own_us[0] < best_us):
            most = MOST_PER_SIZE if lanes == 1 else 1
            found += [n for n, us in zip(own[:most], own_us, strict=False) if us <= limit_us]
            best_us = min(best_us, own_us[0])
    return found


def _promising(found: _Cut, bound: TimeBound, sizes_bytes: Iterable[int]) -> Candidate:
    promises = []
    for size_bytes in sizes_bytes:
        bound_us = bound.time_us(size_bytes)
        promises.append(Promise(size_bytes, max(bound_us, found.wires_us[size_bytes]), bound_us))
    return replace(found.candidate, promises=tuple(promises))
