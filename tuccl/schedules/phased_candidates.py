"""Candidates for the executor on several nodes: plans of phases.

They depend on the number of nodes and of GPUs on each alone, and cost no synthesis. Each plan comes
with several configurations of NCCL's calls along rails and several numbers of lanes. All of them
are tried, each at the sizes that it is for: latency decides up to `SMALL_BYTES`, where a call stays
in one piece, and threads that drive the network decide above, where slices are spread over lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import inf

from lookup_tables.collective import Collective
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import TimeBound, time_bound
from synthesizer.programs.layout import PhaseKind
from synthesizer.programs.phase_plans import phased_plans
from synthesizer.programs.phases import PhasedSchedule
from synthesizer.programs.proof import is_within_reach
from tuccl.models.across_hosts.grid_figures import GridFigures
from tuccl.models.across_hosts.phased_model import PhasedModel, PhaseParameters, wire_times
from tuccl.models.executor_model import KernelParameters
from tuccl.models.model_constants import SHIPPED
from tuccl.schedules.call_slices import LANES, can_be_sliced, slice_sizes, slices_of_call
from tuccl.schedules.candidates import Candidate, Promise
from tuccl.search.trials.presets import phased_families

SMALL_BYTES = 64 << 10
"""Largest call that is not worth a second slice: on two faked nodes of two H200 an empty round
along a rail takes 25 us, as long as 64 KB."""
SHORT = 1.1
"""Ratio of a plan's time on the links to the bound from which schedules of sketches are searched.
"""
_LATENCY_RAILS = (
    BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 1),
    BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 2),
    BuiltinConfig(NcclAlgorithm.PAT, NcclProtocol.SIMPLE, 1),
)
_BANDWIDTH_RAILS = (
    BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.SIMPLE, 1),
    BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.SIMPLE, 2),
)
_PAT = BuiltinConfig(NcclAlgorithm.PAT, NcclProtocol.SIMPLE, 1)
"""NCCL has it for one rank per node, as on a rail, and for all_gather and reduce_scatter alone."""
_WHOLE = "_full"
"""End of the names of plans that send all of a call along each rail: for latency alone."""


def phased_candidates(
    operation: Collective, grid: GridFigures, machine: Sketch, sizes_bytes: Sequence[int]
) -> tuple[Candidate, ...]:
    """Return the candidates of an operation, each with the sizes that it is for.

    Args:
        operation: The operation; some have no plan, or none that is small enough for a proof.
        grid: Figures of the machine, which has several nodes of equal size.
        machine: The whole machine, unpruned.
        sizes_bytes: Sizes that are tuned.
    """
    collective = operation
    small = [size for size in sizes_bytes if size <= SMALL_BYTES]
    large = [size for size in sizes_bytes if size > SMALL_BYTES]
    bound = time_bound(collective, machine)
    found: dict[str, Candidate] = {}
    shape = grid.machine.shape
    plans = phased_plans(collective, shape.nodes, shape.ranks_per_node)
    for plan in filter(is_within_reach, plans):
        promises = {size: _promise(plan, grid, bound, size) for size in sizes_bytes}
        for variants, sizes in ((_for_latency(plan), small), (_for_bandwidth(plan), large)):
            for variant in variants if sizes else ():
                candidate = Candidate(variant, machine, f"plan {variant.name}")
                before = found.get(candidate.content_hash, candidate).promises
                taken = tuple(promises[size] for size in sizes)
                found.setdefault(candidate.content_hash, candidate)
                found[candidate.content_hash] = replace(
                    found[candidate.content_hash], promises=(*before, *taken)
                )
    return tuple(found.values())


def fastest_us(
    candidates: Sequence[Candidate],
    grid: GridFigures,
    sizes_bytes: Sequence[int],
    *,
    ll128: bool = True,
) -> dict[int, float]:
    """Return the modelled time of the fastest candidate by size; none where none is for a size."""
    model = PhasedModel(grid, SHIPPED)
    found: dict[int, float] = {}
    for size_bytes in sizes_bytes:
        for candidate in candidates:
            if candidate.phases is not None and candidate.promises_for(size_bytes):
                time_us = _fastest_us(candidate.phases, size_bytes, model, ll128=ll128)
                found[size_bytes] = min(found.get(size_bytes, inf), time_us)
    return found


def sizes_short_of_bound(
    candidates: Sequence[Candidate], grid: GridFigures, sizes_bytes: Sequence[int]
) -> tuple[int, ...]:
    """Return the sizes at which the links of no plan are used as well as they could be.

    Slices hide the shorter of both times, inside nodes and on the network. Below `SMALL_BYTES` a
    plan has as few launches and rounds as there can be.
    """
    return tuple(
        size_bytes
        for size_bytes in sizes_bytes
        if size_bytes > SMALL_BYTES
        and not any(
            wire_times(plan.phases, size_bytes, grid).at_once_us <= SHORT * promise.bound_us
            for plan in candidates
            if plan.phases is not None
            for promise in plan.promises
            if promise.size_bytes == size_bytes
        )
    )


def _fastest_us(plan: PhasedSchedule, size_bytes: int, model: PhasedModel, *, ll128: bool) -> float:
    """Return the time under the best parameters, all of them with the most threads."""
    families = phased_families("", size_bytes, slice_sizes(plan, size_bytes), ll128=ll128)
    return min(
        (
            model.time_us(
                plan,
                size_bytes,
                PhaseParameters(
                    KernelParameters(NcclProtocol(family.protocol), nchannels, family.nthreads[-1]),
                    slices_of_call(plan, size_bytes, slice_bytes),
                ),
            )
            for family in families
            for nchannels, slice_bytes in product(family.nchannels, family.buffer_bytes)
        ),
        default=inf,
    )


def _promise(plan: PhasedSchedule, grid: GridFigures, bound: TimeBound, size_bytes: int) -> Promise:
    """Return the promise of all settings of a plan, phase after phase on the wires alone."""
    bound_us = bound.time_us(size_bytes)
    return Promise(
        size_bytes, max(bound_us, wire_times(plan, size_bytes, grid).in_turn_us), bound_us
    )


def _for_latency(plan: PhasedSchedule) -> Iterator[PhasedSchedule]:
    if _is_one_call(plan):
        return
    yield plan
    yield from _steered(plan, _LATENCY_RAILS)


def _for_bandwidth(plan: PhasedSchedule) -> Iterator[PhasedSchedule]:
    if plan.name.endswith(_WHOLE):
        return
    if not _is_one_call(plan):
        yield plan
        yield from _steered(plan, (*_BANDWIDTH_RAILS, _PAT))
    for lanes in LANES if can_be_sliced(plan) else ():
        laned = plan.with_lanes(lanes)
        yield laned
        yield from _steered(laned, _BANDWIDTH_RAILS)


def _is_one_call(plan: PhasedSchedule) -> bool:
    """Whether the plan with one lane is NCCL's own call."""
    return len(plan.phases) == 1


def _steered(plan: PhasedSchedule, rails: Sequence[BuiltinConfig]) -> Iterator[PhasedSchedule]:
    """The plan with each configuration that one of its calls along rails can take."""
    along_rails = [phase.collective for phase in plan.calls if phase.kind is PhaseKind.RAIL]
    asked = [collective for collective in along_rails if collective.asks_tuner]
    for rail in rails:
        takes_pat = all(collective.divides for collective in asked)
        if asked and (rail.algorithm is not NcclAlgorithm.PAT or takes_pat):
            yield plan.with_rails(rail)
