"""A bench: tables against stock NCCL, in jobs of new processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from pathlib import Path

from lookup_tables.collective import Collective
from tuccl.api.hosts.probe_options import Reach
from tuccl.api.hosts.probing import with_hosts
from tuccl.api.hosts.settled_nccl import nccl_of_host, settle_nccl, tell_nccl
from tuccl.crew.places import LocalPlaces, Places
from tuccl.crew.started_rank import ranks_of_launcher
from tuccl.errors import UsageError
from tuccl.measuring.engines.job import Site, divisions_of
from tuccl.measuring.engines.job_processes import STOCK, Contender
from tuccl.measuring.engines.nccl_environment import (
    check_environment,
    count_gpus,
    seen_variables,
)
from tuccl.measuring.engines.nccl_library import find_nccl
from tuccl.measuring.engines.nccl_workers import require_mps, sharing_variables
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.measuring.workers.seating import whole_shape
from tuccl.options.option import DEFAULT_WORKSPACE
from tuccl.quantities import count_of, format_about
from tuccl.search.trials.events import Listener
from tuccl.search.trials.timing import Computation, Timing
from tuccl.shipping.bench.baseline_table import (
    BaselineFile,
    baseline_notes,
    baseline_table,
    counts_as_registered,
)
from tuccl.shipping.bench.contenders import ShippedTable
from tuccl.shipping.bench.placed_calls import untimed_note
from tuccl.shipping.bench.places import (
    FoundTable,
    found_tables,
    keys_of,
    require_entries,
)
from tuccl.shipping.bench.result import BenchResult, bench_result
from tuccl.shipping.bench.rounds import Bench, BenchLimits
from tuccl.shipping.bench.step import benched_calls
from tuccl.shipping.bench.upgrade import Upgrade, UpgradeResult, upgrade_contenders, upgrade_result
from tuccl.shipping.sourcing import ENVIRONMENT_NAME
from tuccl.workloads.call_timing import has_place, mostly_in_place, mostly_outside_graphs
from tuccl.workloads.step_calls import StepCalls
from tuccl.workloads.workload import Workload
from tuccl.workspace.runs import Workspace


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What is benched, and how."""

    directories: tuple[Path, ...]
    """Workspaces or shipped directories of the tables, at most two."""
    operations: tuple[Collective, ...] | None
    """None: the table's."""
    sizes_bytes: tuple[int, ...] | None
    """None: the table's."""
    workload: Workload | None
    plan: BenchLimits
    environment: Mapping[str, str]
    """Environment of the jobs: this process's, without a table's variables."""
    laboratory: Laboratory
    baseline: BaselineFile | None
    """A tuner's file that is compared, too."""
    upgrade: Upgrade | None
    """The releases to compare; None: one NCCL serves all jobs."""
    gpus: int | None
    """The first GPUs of this host; None: all."""
    with_executor: bool
    plain: bool | None
    """Whether calls are timed one by one; None: as the workload or the table says."""
    in_place: bool
    in_windows: bool
    """Whether calls are timed on registered buffers."""
    alone: bool
    """Whether calls are timed alone even if those of the table were not."""


Deliver = Callable[[BenchResult | UpgradeResult], int]
"""Takes the result, on one rank, and returns the exit code."""


def bench(
    request: BenchRequest,
    listener: Listener,
    deliver: Deliver,
    reach: Reach = Reach(),  # noqa: B008 - frozen
) -> int:
    """Bench on the GPUs of this host, or on those of the ranks of a job.

    Args:
        request: What is benched.
        listener: Told how far it is.
        deliver: Takes the result.
        reach: The hosts, if no launcher has started a rank on each.

    Returns:
        The exit code.

    Raises:
        UsageError: The request cannot be met here.
        MeasurementError: The GPUs cannot be measured.
    """
    ranks = ranks_of_launcher(os.environ)
    reach.require_possible(ranks)
    several = ranks > 1 or reach.names_hosts(os.environ)
    if several and (request.gpus is not None or request.laboratory.nodes > 1):
        raise UsageError(
            "--gpus and --fake-nodes choose among one host's GPUs: leave them out where each rank "
            "of a job, or slot of --hosts or --ray, has one"
        )

    def lead(places: Places | None) -> int:
        if places is None:
            return _bench_here(request, listener, deliver)
        _require_runs(request)
        if len({place.host for place in places.places}) > 1:
            _require_shipped(request)
        settle_nccl(places, listener.note, required=True)
        with closing(places), _tables(request) as found:
            _check_base(request, found, listener)
            return deliver(_bench(request, found, places, listener))

    directory = request.directories[0]
    return with_hosts(reach, lead, environment=request.environment, meeting=directory)


def _require_runs(request: BenchRequest) -> None:
    """Require a table in each workspace, before anything is measured.

    Raises:
        WorkspaceError: One has none.
    """
    for directory in request.directories:
        if directory == DEFAULT_WORKSPACE or (directory / "runs").is_dir():
            Workspace(directory).current()


def _require_shipped(request: BenchRequest) -> None:
    """Require directories for jobs, which several hosts may see.

    Raises:
        UsageError: One is a workspace, or neither.
    """
    for directory in request.directories:
        if (directory / ENVIRONMENT_NAME).exists():
            continue
        raise UsageError(
            "a workspace's table is on one host: `tuccl ship` it to a directory that all hosts "
            "see, and name that"
            if (directory / "runs").is_dir()
            else f"{directory / ENVIRONMENT_NAME} is missing: name a directory of `tuccl ship`"
        )


def _tables(request: BenchRequest) -> AbstractContextManager[tuple[FoundTable, ...]]:
    return found_tables(request.directories, with_executor=request.with_executor)


def _check_base(request: BenchRequest, found: Sequence[FoundTable], listener: Listener) -> None:
    """Check for variables with which the first table was not measured, and note those that lack.

    Raises:
        MeasurementError: A variable overrules tables, or would change both of what is compared.
    """
    listed = found[0].listed
    base = None if listed is None else listed.base
    check_environment(request.environment, base)
    seen = seen_variables(request.environment)
    lacking = [f"{name}={value}" for name, value in (base or {}).items() if name not in seen]
    if lacking:
        listener.note(
            [f"the table was measured with {' '.join(lacking)}, which this shell does not set"]
        )


def _bench_here(request: BenchRequest, listener: Listener, deliver: Deliver) -> int:
    """Bench on the GPUs of this host."""
    _require_runs(request)
    with _tables(request) as found:
        _check_base(request, found, listener)
        nccl = nccl_of_host(request.environment)
        tell_nccl([nccl], required=True, note=listener.note)
        laboratory = request.laboratory
        gpus = count_gpus(1 if laboratory.share_gpus else request.gpus or 2)
        wanted_gpus = request.gpus or gpus
        ranks = laboratory.ranks(wanted_gpus)
        if laboratory.share_gpus:
            laboratory = laboratory.on_gpus(ranks, min(gpus, wanted_gpus))
            require_mps(laboratory.devices(ranks))
        elif ranks > wanted_gpus:
            sizes = "+".join(str(size) for size in laboratory.sizes)
            raise UsageError(
                f"--fake-nodes {sizes} needs {ranks} GPUs, here are {wanted_gpus}; "
                "--share-gpus lets each node have them all"
            )
        environment = {**request.environment, **nccl.variables}
        if laboratory.gpus:
            library = find_nccl(None, environment)
            environment |= sharing_variables(library, ranks, laboratory.gpus)
        if laboratory.nodes > 1 or laboratory.gpus:
            listener.note(laboratory.notes())
        with closing(LocalPlaces(ranks, laboratory.devices(ranks), environment)) as places:
            request = replace(request, laboratory=laboratory)
            return deliver(_bench(request, found, places, listener))


def _bench(
    request: BenchRequest, found: tuple[FoundTable, ...], places: Places, listener: Listener
) -> BenchResult | UpgradeResult:
    faked = request.laboratory.node_sizes(len(places.places))
    shape = whole_shape(places.places, faked)
    tables = [table.shipped for table in found]
    for table in tables:
        require_entries(table, shape)
    listener.note(dict.fromkeys(note for table in found for note in table.notes))
    unplaced = (untimed_note(table.table, shape) for table in tables)
    listener.note(dict.fromkeys(filter(None, unplaced)))
    calls = None
    if request.workload is None:
        tasks = keys_of(found[0], shape, request.operations, request.sizes_bytes)
    else:
        calls = benched_calls(request.workload, shape, tables)
        listener.note(calls.left_out_notes)
        tasks = tuple(key.task for key in calls.keys)
    timing = _timing(request, calls, found)
    tables = [_judged(table, timing, listener) for table in found]
    if request.baseline is not None:
        registered = counts_as_registered(timing, request.environment)
        file = request.baseline.for_keys(tasks)
        listener.note(baseline_notes(file, tasks, registered=registered))
        tables = [*tables, baseline_table(file, tasks, tables[0], registered=registered)]
    listener.say(_announcement(request, len(tasks)))
    site = Site(places, shape, timing, faked, divisions_of(tasks, shape))
    contenders: tuple[Contender, ...] = (STOCK, *tables)
    if request.upgrade is not None:
        contenders = upgrade_contenders(tables[0], request.upgrade)
    with listener.progress() as progress:
        measured = Bench(site, contenders, tasks, progress, listener.say).run(request.plan)
    if request.upgrade is not None:
        return upgrade_result(measured, tables[0], request.upgrade, shape, timing)
    return bench_result(measured, tables, shape, timing, calls)


def _timing(request: BenchRequest, calls: StepCalls | None, found: Sequence[FoundTable]) -> Timing:
    """Return how calls are timed: as named, else as the workload makes them, else as tuned.

    Beside the computation of the workload they are timed where those of a table were.
    """
    plain, in_place = request.plain, request.in_place
    listed = found[0].listed
    beside = () if listed is None else listed.computations
    if calls is not None and request.workload is not None:
        plain = mostly_outside_graphs(request.workload) if plain is None else plain
        in_place = in_place or (mostly_in_place(request.workload) and has_place(calls))
        beside = _beside_workload(calls, found)
    elif listed is not None:
        plain = listed.graphs is False if plain is None else plain
        in_place = in_place or bool(listed.in_place)
    beside = () if request.alone else beside
    return Timing(
        graph=not plain,
        in_place=in_place,
        in_windows=request.in_windows,
        computations=beside,
    )


def _beside_workload(calls: StepCalls, found: Sequence[FoundTable]) -> tuple[Computation, ...]:
    """Return the computation beside a workload's calls: as a table of it was tuned, if one was.

    Another recording of the same calls has other times.
    """
    listed = [table.listed for table in found if table.listed and table.listed.computations]
    of_it = (each for each in listed if each.step and each.step.workload == calls.digest)
    own = next(of_it, None)
    if own is not None:
        return own.computations
    return calls.computations if listed else ()


def _judged(found: FoundTable, timing: Timing, listener: Listener) -> ShippedTable:
    """Return a table; if it was timed otherwise, its stated gains are not compared."""
    tuned_beside = () if found.listed is None else found.listed.computations
    otherwise = "with other computation beside its calls than they are timed with here"
    if timing.in_windows:
        otherwise = "on buffers that are not registered"
    elif tuned_beside == timing.computations:
        return found.shipped
    listener.note(
        [f"{found.shipped.name} was tuned {otherwise}: what it promises is not looked at"]
    )
    return replace(found.shipped, timed_alike=False)


def _announcement(request: BenchRequest, keys: int) -> str:
    plan, tables = request.plan, len(request.directories)
    what = "stock NCCL and " + ("the table" if tables == 1 else f"{tables} tables")
    if request.baseline is not None:
        what = f"stock NCCL, the table and {request.baseline.baseline.name}"
    if request.upgrade is not None:
        old, new = request.upgrade.old.version_text, request.upgrade.new.version_text
        what += f", each under NCCL {old} and {new},"
    rounds = f"{plan.rounds} rounds"
    if plan.budget_s is not None:
        rounds = f"rounds for {format_about(plan.budget_s)}"
    return f"{count_of(keys, 'key')}, {rounds} of new processes for {what} in turn"
