"""The pipeline of `tuccl init`: machine, sketches, schedules, tuning, table, bundle.

Each stage leaves its result in the workspace and is skipped when it is already there; measurements
are never repeated. Killed at any moment and started again, a run ends with the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial

from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.store import table_to_parquet_bytes
from lookup_tables.table import Operation
from probes.topology.graph import Topology
from probes.topology.json_form import topology_to_json
from sketches.candidates import sketch_candidates, whole_machine
from sketches.sketch import Sketch
from sketches.sketch_json import sketch_to_json
from synthesizer.ir.collectives import Collective
from tuccl.backends.backend_choice import (
    BackendRequest,
    backend_kind,
    builtins_of,
    keeps_128_bytes,
    open_backend,
    promising_of,
    require_backend,
)
from tuccl.errors import WorkspaceError
from tuccl.measuring.places import Places
from tuccl.models.figures import communicator_shape
from tuccl.models.grid_figures import grid_figures
from tuccl.pipeline.dry_run import make_plan
from tuccl.pipeline.estimate import (
    Estimate,
    measuring_seconds,
    schedules_seconds,
    search_seconds,
)
from tuccl.pipeline.results import Origin, build_report, build_table
from tuccl.processes.workers import worker_processes, workers_for
from tuccl.records.record import Record
from tuccl.reports.finished_run import FinishedRun, finished
from tuccl.schedules.candidates import Candidate, make_candidates
from tuccl.schedules.executor_schedules import executor_space, modelled_space, with_kernels
from tuccl.schedules.guidance import guided
from tuccl.schedules.own_schedules import OwnSchedule, own_candidates, with_own
from tuccl.schedules.phased_candidates import phased_candidates
from tuccl.schedules.saved_candidates import are_saved, load_candidates, save_candidates
from tuccl.trials.config import Task
from tuccl.trials.space import Space
from tuccl.trials.timing import timing_of
from tuccl.tuning.settings import RunSettings
from tuccl.tuning.tune import SearchSpaces, tune
from tuccl.words.progress import Progress
from tuccl.workspace.atomic_file import require_room, write_atomically
from tuccl.workspace.measurement_log import MeasurementLog
from tuccl.workspace.runs import Run, RunRecord, Workspace


def initialize(
    topology: Topology,
    settings: RunSettings,
    workspace: Workspace,
    progress: Progress,
    record: Record | None = None,
    places: Places | None = None,
    own_schedules: Sequence[OwnSchedule] = (),
    announce: Callable[[Estimate], None] = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
) -> FinishedRun:
    """Tune a machine, or continue where an earlier run stopped.

    Args:
        topology: A valid machine.
        settings: Settings of the run.
        workspace: Directory for the results.
        progress: Receives the progress of each stage.
        record: Record to replay, if the backend needs one.
        places: Hosts and devices of the workers; None: this host.
        own_schedules: The user's schedules, whose digests are in the settings.
        announce: Receives the estimated time of a run that begins or continues.
        tell: Receives messages on failures of workers, a line each.

    Raises:
        WorkspaceError: when the workspace is busy or cannot be written.
        MeasurementError: when the backend cannot go on; what it measured is kept.
    """
    identity = settings.identity(topology)
    done = finished(workspace.run(identity))
    if done is not None and workspace.is_current(identity):
        return done
    with workspace.lock(identity) as run:
        done = finished(run)
        if done is None:
            require_room(run.measurements)
            planned = backend_request(topology, settings, record, places=places)
            require_backend(settings.backend, planned)
            begun = _begin(run, identity, settings)
            write_atomically(run.topology, topology_to_json(topology))
            sketches = _sketches(topology, settings, run)
            announce(_estimate(topology, settings, record, sketches, run))
            candidates = _candidates(topology, settings, sketches, own_schedules, run, progress)
            request = backend_request(topology, settings, record, candidates, places)
            request = replace(request, tell=tell)
            done = _tune(settings, candidates, request, run, begun, progress)
            run.write_record(replace(begun, complete=True))
        workspace.set_current(identity)
    return done


def _begin(run: Run, identity: str, settings: RunSettings) -> RunRecord:
    """The record of a run that starts or continues, with its options for `retune`."""
    options = asdict(settings.options)
    try:
        record = run.record()
    except WorkspaceError:
        record = None  # Damaged, but the log and the options hold all that it needs.
    if record is None:
        now = datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        record = RunRecord(identity=identity, options=options, complete=False, tuned_at=now)
    record = replace(record, options=options, complete=False)
    run.write_record(record)
    return record


def _sketches(topology: Topology, settings: RunSettings, run: Run) -> Sequence[Sketch]:
    """Sketches of the machine, saved in the run; none where no schedules are made on them."""
    if not settings.schedules or _runs_phases(settings, topology):
        return ()
    operations = [Collective(operation.value) for operation in settings.operations]
    sketches = guided(operations, sketch_candidates(topology))
    for sketch in sketches:
        write_atomically(run.sketches / f"{sketch.name}.json", sketch_to_json(sketch))
    return sketches


def _estimate(
    topology: Topology,
    settings: RunSettings,
    record: Record | None,
    sketches: Sequence[Sketch],
    run: Run,
) -> Estimate:
    """Estimate of the time that the rest of a run takes."""
    missing = [
        operation
        for operation in settings.operations
        if not are_saved(run.schedules / operation.value)
    ]
    schedules_s = 0.0
    if sketches and missing:
        workers = workers_for(sketches[0].ranks)
        schedules_s = schedules_seconds(missing, sketches, settings.sizes_bytes, workers)
    kind = backend_kind(settings.backend)
    if kind.has_workers:
        plan = make_plan(settings, backend_request(topology, settings, record))
        measuring_s = measuring_seconds(plan)
    else:
        measuring_s = search_seconds(len(settings.operations) * len(settings.sizes_bytes), sketches)
    begun = run.measurements.is_file()
    return Estimate(schedules_s, measuring_s, measures=kind.has_workers, begun=begun)


def _candidates(
    topology: Topology,
    settings: RunSettings,
    sketches: Sequence[Sketch],
    own_schedules: Sequence[OwnSchedule],
    run: Run,
    progress: Progress,
) -> dict[Operation, tuple[Candidate, ...]]:
    """Schedules on the sketches of the machine, and the user's own."""
    if not settings.schedules:
        return {}
    machine = whole_machine(topology)
    if _runs_phases(settings, topology):
        found = _phased(settings, topology, machine, run)
    else:
        found = _schedules(settings, sketches, machine, run, progress)
    if backend_kind(settings.backend).has_executor and communicator_shape(topology).nodes == 1:
        found = {
            operation: with_kernels(operation, candidates, sketches, machine, settings.sizes_bytes)
            for operation, candidates in found.items()
        }
    own = own_candidates(own_schedules, sketches, machine, settings.sizes_bytes)
    return with_own(found, own)


def _runs_phases(settings: RunSettings, topology: Topology) -> bool:
    """Whether plans of phases are searched, which the executor runs on several nodes.

    It runs nothing else there, so no other schedules are made; a user's own are searched as well
    where they are modelled.
    """
    is_across = communicator_shape(topology).nodes > 1
    return is_across and backend_kind(settings.backend).runs_schedules


def _phased(
    settings: RunSettings, topology: Topology, machine: Sketch, run: Run
) -> dict[Operation, tuple[Candidate, ...]]:
    """Load the saved plans, or make and save them."""
    found: dict[Operation, tuple[Candidate, ...]] = {}
    if not topology.ranks_per_node:
        return dict.fromkeys(settings.operations, ())
    grid = grid_figures(topology)
    for operation in settings.operations:
        directory = run.schedules / operation.value
        candidates = load_candidates(directory, [machine])
        if candidates is None:
            candidates = phased_candidates(operation, grid, machine, settings.sizes_bytes)
            save_candidates(directory, candidates)
        found[operation] = candidates
    return found


def _schedules(
    settings: RunSettings,
    sketches: Sequence[Sketch],
    machine: Sketch,
    run: Run,
    progress: Progress,
) -> dict[Operation, tuple[Candidate, ...]]:
    """Load the saved schedules; generate and save the missing ones, operation by operation."""
    found: dict[Operation, tuple[Candidate, ...]] = {}
    total = len(settings.operations) * len(sketches)
    saved = {
        operation: load_candidates(run.schedules / operation.value, sketches)
        for operation in settings.operations
    }
    count = workers_for(machine.ranks) if None in saved.values() else 1
    costs = {
        operation: schedules_seconds([operation], sketches, settings.sizes_bytes, count)
        for operation, candidates in saved.items()
        if candidates is None
    }
    whole_s = sum(costs.values())
    with worker_processes(count) as workers:
        for number, (operation, candidates) in enumerate(saved.items()):
            first = number * len(sketches)
            past_s = sum(costs.get(past, 0.0) for past in settings.operations[:number])
            cost_s = costs.get(operation, 0.0)

            def report(
                done: int,
                share: float,
                first: int = first,
                past_s: float = past_s,
                cost_s: float = cost_s,
            ) -> None:
                past_s += share * cost_s
                share = min(1.0, past_s / whole_s) if whole_s else 1.0
                progress("schedules", first + done, total, share=share)

            report(0, 0.0)
            if candidates is None:
                candidates = make_candidates(  # noqa: PLW2901 - generated if not saved
                    Collective(operation.value),
                    sketches,
                    machine,
                    settings.sizes_bytes,
                    settings.solver_seconds,
                    report,
                    workers,
                )
                save_candidates(run.schedules / operation.value, candidates)
            found[operation] = candidates
    progress("schedules", total, total, share=1.0)
    return found


def backend_request(
    topology: Topology,
    settings: RunSettings,
    record: Record | None,
    candidates: Mapping[Operation, Sequence[Candidate]] | None = None,
    places: Places | None = None,
) -> BackendRequest:
    """The request that opens a run's backend, with the schedules of the candidates given."""
    kind = backend_kind(settings.backend)
    all_candidates = [c for found in (candidates or {}).values() for c in found]
    return BackendRequest(
        topology=topology,
        shape=communicator_shape(topology) if record is None else record.shape,
        seed=settings.options.seed,
        spread=settings.spread,
        model=settings.model,
        schedules={c.content_hash: c for c in all_candidates},
        record=record,
        places=places,
        laboratory=settings.laboratory,
        timing=settings.timing,
        tunes_nccl=kind.tunes_nccl,
        measures_nccl=kind.measures_nccl,
    )


def _tune(
    settings: RunSettings,
    candidates: Mapping[Operation, Sequence[Candidate]],
    request: BackendRequest,
    run: Run,
    begun: RunRecord,
    progress: Progress,
) -> FinishedRun:
    ll128 = keeps_128_bytes(request.topology)

    def schedules(task: Task) -> Space:
        found = candidates.get(task.operation, ())
        promising = [c for c in found if c.promises_for(task.size_bytes)]
        if backend_kind(settings.backend).has_executor:
            return executor_space(promising, task.size_bytes, ll128=ll128)
        return modelled_space(promising, task.size_bytes, ll128=ll128)

    spaces = SearchSpaces(
        partial(builtins_of, request),
        schedules,
        partial(promising_of, request),
        jobs_run_schedules=backend_kind(settings.backend).has_executor,
    )
    with (
        open_backend(settings.backend, request) as backend,
        MeasurementLog(run.measurements, backend, begun.identity, request.tell) as log,
    ):
        seconds_pass = backend_kind(settings.backend).has_workers
        tuning = tune(settings, request.shape, spaces, log, progress, seconds_pass=seconds_pass)
        source = log.contents.source  # All figures may be of an earlier process.
        provenance = source.provenance if source else backend.provenance
        origin = Origin(begun.tuned_at, replace(provenance, machine=request.topology.name))
        timing = source.timing if source else timing_of(backend)
    topology = request.topology
    table = build_table(topology, topology.fingerprint(), tuning, candidates, origin)
    report = build_report(table, tuning, candidates, settings, timing, origin.provenance)
    write_atomically(run.report, report.model_dump_json(indent=1) + "\n")
    write_atomically(run.bundle, bundle_bytes(table))
    write_atomically(run.table, table_to_parquet_bytes(table))
    return FinishedRun(run, table, report, already_done=False)
