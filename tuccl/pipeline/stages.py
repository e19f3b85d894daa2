"""The pipeline of `tuccl init`: machine, sketches, schedules, tuning, table, bundle.

Each stage leaves its result in the workspace and is skipped when it is already there; measurements
are never repeated. Killed at any moment and started again, a run ends with the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial

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
from tuccl.lookup_tables.bundles.bundle_writer import bundle_bytes
from tuccl.lookup_tables.store import table_to_parquet_bytes
from tuccl.lookup_tables.table import Operation, Shape
from tuccl.measuring.places import Places
from tuccl.models.figures import communicator_shape
from tuccl.pipeline.dry_run import make_plan
from tuccl.pipeline.estimate import (
    Estimate,
    measuring_seconds,
    schedules_seconds,
    search_seconds,
)
from tuccl.pipeline.results import Origin, build_report, build_table
from tuccl.pipeline.shape_schedules import Part, candidates_of, parts_of, sketches_of
from tuccl.probes.topology.graph import Topology
from tuccl.probes.topology.json_form import topology_to_json
from tuccl.processes.workers import workers_for
from tuccl.records.record import Record
from tuccl.reports.finished_run import FinishedRun, finished
from tuccl.reports.host_record import (
    host_record_text,
    is_of_machine,
    read_host_record,
    record_host,
)
from tuccl.schedules.candidates import Candidate
from tuccl.schedules.executor_schedules import executor_space, modelled_space
from tuccl.schedules.own_schedules import OwnSchedule
from tuccl.schedules.saved_candidates import are_saved
from tuccl.sketches.sketch import Sketch
from tuccl.trials.config import Task
from tuccl.trials.events import RunBegins, SchedulesMade, Watch, unwatched
from tuccl.trials.space import Space
from tuccl.trials.timing import timing_of
from tuccl.tuning.run_keys import keys_of
from tuccl.tuning.settings import RunSettings
from tuccl.tuning.tune import SearchSpaces, tune
from tuccl.words.progress import Progress
from tuccl.workloads.workload import Workload
from tuccl.workloads.workload_file import write_workload
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
    workload: Workload | None = None,
    announce: Callable[[Estimate], None] = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
    watch: Watch = unwatched,
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
        workload: The workload whose calls are in the settings; it is kept with the run.
        announce: Receives the estimated time of a run that begins or continues.
        tell: Receives messages on failures of workers, a line each.
        watch: Receives the events of a run that begins or continues.

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
            if backend_kind(settings.backend).measures_nccl:
                _record_host(run, topology)
            if workload is not None:
                write_workload(run.workload, workload)
            parts = [
                (part, sketches_of(part, settings)) for part in parts_of(topology, settings, run)
            ]
            announce(_estimate(topology, settings, record, parts, run))
            keys = tuple(keys_of(settings, planned.shape))
            watch(RunBegins(topology.name, settings.backend, keys, settings.budget_s))
            candidates = {
                part.shape: candidates_of(part, settings, sketches, own_schedules, progress)
                for part, sketches in parts
            }
            request = backend_request(topology, settings, record, candidates, places)
            request = replace(request, tell=tell)
            made = [request.schedules, *request.shapes.values()]
            names = {content: found.name for own in made for content, found in own.items()}
            watch(SchedulesMade(names))
            done = _tune(settings, candidates, request, run, begun, progress, watch)
            run.write_record(replace(begun, complete=True))
        workspace.set_current(identity)
    return done


def _record_host(run: Run, topology: Topology) -> None:
    """Write down what this host is, if it is one of the machine and the run has none yet."""
    if read_host_record(run.host) is None and (record := record_host()) is not None:
        models = {gpu.model for gpu in topology.gpus}
        # Faked nodes are parts of one host, or share all of its GPUs.
        if is_of_machine(record, models, (topology.ranks_per_node, len(topology.gpus))):
            write_atomically(run.host, host_record_text(record))


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


def _estimate(
    topology: Topology,
    settings: RunSettings,
    record: Record | None,
    parts: Sequence[tuple[Part, Sequence[Sketch]]],
    run: Run,
) -> Estimate:
    """Estimate of the time that the rest of a run takes."""
    kind = backend_kind(settings.backend)
    schedules_s = search_s = 0.0
    for part, sketches in parts:
        sizes = {each: settings.sizes_of(each, part.shape) for each in settings.operations}
        search_s += search_seconds(sum(map(len, sizes.values())), sketches)
        if sketches:
            workers = workers_for(sketches[0].ranks)
            schedules_s += sum(
                schedules_seconds([operation], sketches, own, workers)
                for operation, own in sizes.items()
                if own and not are_saved(part.schedules / operation.value)
            )
    if kind.has_workers:
        plan = make_plan(settings, backend_request(topology, settings, record))
        search_s = measuring_seconds(plan)
    begun = run.measurements.is_file()
    return Estimate(schedules_s, search_s, measures=kind.has_workers, begun=begun)


def backend_request(
    topology: Topology,
    settings: RunSettings,
    record: Record | None,
    candidates: Mapping[Shape, Mapping[Operation, Sequence[Candidate]]] | None = None,
    places: Places | None = None,
) -> BackendRequest:
    """The request that opens a run's backend, with the schedules of the candidates given."""
    kind = backend_kind(settings.backend)
    whole = communicator_shape(topology) if record is None else record.shape
    shapes = {shape: _by_hash((candidates or {}).get(shape)) for shape in settings.shapes_of(whole)}
    return BackendRequest(
        topology=topology,
        shape=whole,
        seed=settings.options.seed,
        spread=settings.spread,
        model=settings.model,
        schedules=shapes.pop(whole, {}),
        shapes=shapes,
        record=record,
        places=places,
        laboratory=settings.laboratory,
        timing=settings.timing,
        tunes_nccl=kind.tunes_nccl,
        measures_nccl=kind.measures_nccl,
    )


def _by_hash(
    candidates: Mapping[Operation, Sequence[Candidate]] | None,
) -> dict[str, Candidate]:
    return {c.content_hash: c for found in (candidates or {}).values() for c in found}


def _tune(
    settings: RunSettings,
    candidates: Mapping[Shape, Mapping[Operation, Sequence[Candidate]]],
    request: BackendRequest,
    run: Run,
    begun: RunRecord,
    progress: Progress,
    watch: Watch,
) -> FinishedRun:
    ll128 = keeps_128_bytes(request.topology)

    def schedules(task: Task) -> Space:
        found = candidates.get(task.shape, {}).get(task.operation, ())
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
        MeasurementLog(
            run.measurements,
            backend,
            begun.identity,
            request.tell,
            several_shapes=bool(settings.shapes),
        ) as log,
    ):
        seconds_pass = backend_kind(settings.backend).has_workers
        tuning = tune(
            settings,
            request.shape,
            spaces,
            log,
            progress,
            seconds_pass=seconds_pass,
            watch=watch,
        )
        source = log.contents.source  # All figures may be of an earlier process.
        provenance = source.provenance if source else backend.provenance
        origin = Origin(begun.tuned_at, replace(provenance, machine=request.topology.name))
        timing = source.timing if source else timing_of(backend)
    topology = request.topology
    tried = [c for of_shape in candidates.values() for found in of_shape.values() for c in found]
    table = build_table(topology, topology.fingerprint(), tuning, tried, origin)
    report = build_report(table, tuning, tried, settings, timing, origin.provenance)
    write_atomically(run.report, report.model_dump_json(indent=1) + "\n")
    write_atomically(run.bundle, bundle_bytes(table))
    write_atomically(run.table, table_to_parquet_bytes(table))
    return FinishedRun(run, table, report, already_done=False)
