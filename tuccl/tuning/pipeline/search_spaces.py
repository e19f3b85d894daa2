"""The spaces that a run searches: those of its backend, or those of the record that it replays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.errors import ConfigurationFailedError
from tuccl.measuring.backends.backend_choice import (
    BackendRequest,
    Tell,
    backend_kind,
    builtins_of,
    chosen_of,
    has_executor,
    promising_of,
)
from tuccl.measuring.backends.replay import ReplayBackend
from tuccl.measuring.backends.simulated import SimulatedBackend
from tuccl.models.placements import PlacementClass, placements
from tuccl.quantities import count_of
from tuccl.schedules.candidates import Candidate
from tuccl.schedules.executor_schedules import executor_space, modelled_space
from tuccl.schedules.kept_sums import adds_in_order, run_by_kernels
from tuccl.search.strategies.opening import opening
from tuccl.search.trials.config import DEFAULT_ALGORITHM, Config, Task
from tuccl.search.trials.placement import ANYWHERE
from tuccl.search.trials.space import Family, Space, with_channels_up_to
from tuccl.tuning.results import SearchSpaces
from tuccl.tuning.settings import RunSettings

Candidates = Mapping[Shape, Mapping[Collective, Sequence[Candidate]]]
_SHOWS_ORDER_BYTES = 64 << 10
"""Size from which a ring's chunks are of several ranks."""
_NO_SCHEDULES = Space("settings of NCCL alone", ())


def search_spaces(
    settings: RunSettings,
    candidates: Candidates,
    request: BackendRequest,
    cost_table: Tell = lambda _: None,
    is_right: Callable[[Task, Config], bool] = lambda _task, _config: True,
) -> SearchSpaces:
    """Return the spaces that are searched.

    Args:
        settings: Settings of the run.
        candidates: Schedules that were made, by shape.
        request: Request of the backend.
        cost_table: What NCCL allows, and its estimates, by which placements are told apart.
        is_right: Whether a call delivers the data that it must.
    """

    @cache
    def classes(shape: Shape) -> Sequence[PlacementClass]:
        # What was not recorded elsewhere would count as slower there.
        known = request.record is None or request.takes_recorded_steps
        return placements(request.topology, shape) if known else ()

    def ring_us(task: Task) -> float | None:
        table = cost_table(task)
        return None if table is None else table.ring_us

    model = SimulatedBackend(
        request.topology,
        request.schedules,
        seed=0,
        spread=0.0,
        constants=request.model,
        of_shapes=request.shapes,
        timing=request.timing,
    )

    @cache
    def schedules(task: Task) -> Space:
        return _schedules_of(settings, candidates, request, model, task)

    @cache
    def is_in_order(operation: Collective, shape: Shape, call: Config) -> bool:
        """Whether NCCL's setting adds in the order of a table whose sums do not move."""
        if not backend_kind(settings.backend).has_workers:  # A sum of two has one order alone.
            return shape.ranks == 2
        sizes = settings.sizes_of(operation, shape)
        size_bytes = next((size for size in sizes if size >= _SHOWS_ORDER_BYTES), sizes[-1])
        return is_right(Task(operation, size_bytes, shape), call)

    @cache
    def builtins(task: Task) -> Space:
        space = builtins_of(request, task, cost_table=cost_table)
        if not settings.keeps_sums(task):
            return space
        of_executor = task.shape.ranks > 2 and bool(schedules(task).families)

        def is_kept(family: Family) -> bool:
            if family.algorithm == DEFAULT_ALGORITHM:
                return True
            call = Config(family.algorithm, family.protocol, family.nchannels[0])
            return not of_executor and is_in_order(task.operation, task.shape, call)

        # Chunks decide where in a ring an element's sum begins.
        whole = (replace(family, chunk_bytes=(0,)) for family in space.families)
        kept = replace(space, families=tuple(filter(is_kept, whole)))
        return replace(kept, absent=frozenset(each for each in space.absent if each in kept))

    return SearchSpaces(
        builtins,
        schedules,
        partial(promising_of, request),
        partial(chosen_of, request),
        jobs_run_schedules=has_executor(settings.backend, request.record),
        placements=classes,
        estimate=ring_us,
    )


def cores_note(
    settings: RunSettings, candidates: Candidates, request: BackendRequest
) -> str | None:
    """Return a note on the schedules that are not tried for want of cores; None: all are."""
    if request.record is not None or not backend_kind(settings.backend).has_executor:
        return None
    made = [c for own in candidates.values() for found in own.values() for c in found]
    left_out = sum(c.lanes > request.most_lanes for c in made)
    if not left_out:
        return None
    return (
        f"a rank's share of the cores drives {count_of(request.most_lanes, 'lane')} of a rail; "
        f"left out: {count_of(left_out, 'schedule')} of more lanes"
    )


def _schedules_of(
    settings: RunSettings,
    candidates: Candidates,
    request: BackendRequest,
    model: SimulatedBackend,
    task: Task,
) -> Space:
    if task.placement != ANYWHERE:  # The executor sees no estimates.
        return _NO_SCHEDULES
    most = request.options.max_channels
    return with_channels_up_to(_all_schedules_of(settings, candidates, request, model, task), most)


def _all_schedules_of(
    settings: RunSettings,
    candidates: Candidates,
    request: BackendRequest,
    model: SimulatedBackend,
    task: Task,
) -> Space:
    if request.record is not None:
        return _recorded_schedules(settings, request, task)
    found = candidates.get(task.shape, {}).get(task.operation, ())
    if settings.keeps_sums(task):
        found = [c for c in found if adds_in_order(c, task.shape)]
        space = _space_of(settings, found, request, model, task)
        return run_by_kernels(space) if task.shape.nodes == 1 else space
    sizes = settings.sizes_tried_like(task.size_bytes)
    promising = [c for c in found if any(map(c.promises_for, sizes))]
    return _space_of(settings, promising, request, model, task)


def _space_of(
    settings: RunSettings,
    promising: Sequence[Candidate],
    request: BackendRequest,
    model: SimulatedBackend,
    task: Task,
) -> Space:
    if request.options.max_channels is not None:
        promising = [c for c in promising if c.rail_channels <= request.options.max_channels]
    if not backend_kind(settings.backend).has_executor:
        return modelled_space(promising, task.size_bytes, ll128=request.keeps_128_bytes)
    driven = [c for c in promising if c.lanes <= request.most_lanes]
    space_of = partial(executor_space, size_bytes=task.size_bytes, ll128=request.keeps_128_bytes)

    def modelled_us(candidate: Candidate) -> float:
        try:
            opened = [model.measure(task, call, 0, 1) for call in opening(space_of([candidate]))]
        except ConfigurationFailedError:
            return math.inf
        return min((measured.samples_us[0] for measured in opened), default=math.inf)

    plans, staged = (
        [c for c in driven if c.phased is not None and c.phased.is_uniform is uniform]
        for uniform in (True, False)
    )
    if plans and staged:
        # Searches begin with the first ones, and short ones get no further.
        plan_us = min(map(modelled_us, plans))
        faster = sorted((c for c in staged if modelled_us(c) < plan_us), key=modelled_us)
        driven = [*faster, *(c for c in driven if c not in faster)]
    return space_of(driven)


def _recorded_schedules(settings: RunSettings, request: BackendRequest, task: Task) -> Space:
    record = request.record
    if record is None or not settings.recorded_schedules:
        return _NO_SCHEDULES
    search = record.of_run.search
    if search is not None and request.takes_recorded_steps:
        return search.schedules_of(task)
    return ReplayBackend(record).schedules_of(task)
