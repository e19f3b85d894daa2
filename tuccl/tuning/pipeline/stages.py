"""The pipeline of `tuccl init`: machine, sketches, schedules, tuning, table, bundle.

Each stage leaves its result in the workspace and is skipped when it is already there; measurements
are never repeated. Killed at any moment and started again, a run ends with the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.store import table_to_parquet_bytes
from lookup_tables.table import Operation, Table
from probes.topology.graph import Topology
from probes.topology.json_form import topology_to_json
from sketches.sketch import Sketch
from tuccl.errors import ProfileLostError, WorkspaceError
from tuccl.measuring.backends.backend_choice import (
    BackendRequest,
    backend_kind,
    open_backend,
    require_backend,
)
from tuccl.measuring.records.record import Record
from tuccl.measuring.workers.places import Places
from tuccl.models.figures import communicator_shape
from tuccl.processes.workers import workers_for
from tuccl.reports.finished_run import FinishedRun, finished
from tuccl.reports.host_record import (
    host_record_text,
    read_host_record,
    record_node,
)
from tuccl.reports.report import Report
from tuccl.schedules.candidates import Candidate
from tuccl.schedules.own_schedules import OwnSchedule
from tuccl.schedules.saved_candidates import are_saved
from tuccl.search.trials.config import Task
from tuccl.search.trials.events import Progress, RunBegins, SchedulesMade, Watch, unwatched
from tuccl.search.trials.timing import Timing, timing_of
from tuccl.tuning.pipeline.carried_table import (
    Carried,
    all_again,
    empty_table,
    joined_report,
    joined_table,
    retuned_report,
    samples_in,
)
from tuccl.tuning.pipeline.dry_run import make_plan
from tuccl.tuning.pipeline.estimate import (
    Estimate,
    measuring_seconds,
    schedules_seconds,
    search_seconds,
)
from tuccl.tuning.pipeline.results import Origin, Tried, build_report, build_table
from tuccl.tuning.pipeline.searching.recorded_search import takes_recorded_steps
from tuccl.tuning.pipeline.searching.search_spaces import Candidates, cores_note, search_spaces
from tuccl.tuning.pipeline.shape_schedules import Part, candidates_of, parts_of, sketches_of
from tuccl.tuning.run.results import SearchSpaces, TuningResult
from tuccl.tuning.run.tune import tune, tune_again
from tuccl.tuning.run_keys import keys_of
from tuccl.tuning.settings import RunSettings
from tuccl.workloads.workload import Workload
from tuccl.workloads.workload_file import write_workload
from tuccl.workspace.atomic_file import require_room, write_atomically
from tuccl.workspace.measurement_log import MeasurementLog
from tuccl.workspace.runs import Run, RunRecord, Workspace

_PROFILE_LOST = (
    "the old table's process profile takes more than the floor allows from a key of this machine"
)


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
    carried: Carried | None = None,
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
        carried: The run before a change, whose table some keys may be kept from; None: none is.

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
            begin = _Beginning(
                topology, settings, record, places, own_schedules, run, begun, progress, announce,
                tell, watch,
            )  # fmt: skip
            done = _retuned(begin, carried) if carried is not None else _all_tuned(begin, None)
            run.write_record(replace(begun, complete=True))
        workspace.set_current(identity)
    return done


def _record_host(run: Run, topology: Topology) -> None:
    """Write down what this host is, if it is one of the machine and the run has none yet."""
    if read_host_record(run.host) is not None:
        return
    models = {gpu.model for gpu in topology.gpus}
    # Faked nodes are parts of one host, or share all of its GPUs.
    record = record_node(models, (topology.ranks_per_node, len(topology.gpus)))
    if record is not None:
        write_atomically(run.host, host_record_text(record))


@dataclass(frozen=True)
class _Beginning:
    """A run that has begun, and who is told about it."""

    topology: Topology
    settings: RunSettings
    record: Record | None
    places: Places | None
    own_schedules: Sequence[OwnSchedule]
    run: Run
    begun: RunRecord
    progress: Progress
    announce: Callable[[Estimate], None]
    tell: Callable[[str], None]
    watch: Watch

    def candidates(self, measured: Sequence[Task] | None = None) -> Candidates:
        """Make the schedules for the keys that are measured; None: for all."""
        shapes = None if measured is None else {task.shape for task in measured}
        parts = [
            (part, sketches_of(part, self.settings))
            for part in parts_of(self.topology, self.settings, self.run)
            if shapes is None or part.shape in shapes
        ]
        if shapes is None:
            self.announce(_estimate(self.topology, self.settings, self.record, parts, self.run))
        self._tell_beginning(measured)
        return {
            part.shape: candidates_of(
                part, self.settings, sketches, self.own_schedules, self.progress
            )
            for part, sketches in parts
        }

    def _tell_beginning(self, measured: Sequence[Task] | None) -> None:
        settings = self.settings
        keys = keys_of(settings, self.request({}).shape) if measured is None else measured
        self.watch(RunBegins(self.topology.name, settings.backend, tuple(keys), settings.budget_s))

    def request(self, candidates: Candidates) -> BackendRequest:
        """Return the request that opens the backend, with these schedules."""
        request = backend_request(
            self.topology, self.settings, self.record, candidates, self.places
        )
        return replace(request, tell=self.tell)


def _retuned(begin: _Beginning, carried: Carried) -> FinishedRun:
    """Tune the keys that a change touches, or all of them where it touches the table as a whole."""
    if not carried.plan.is_partial:
        return _all_tuned(begin, carried)
    if not carried.plan.measured:
        table = joined_table(empty_table(begin.topology, carried.warm.profile), carried)
        retuned = retuned_report(carried, (), 0, measured=0)
        return _written(begin, table, joined_report(None, carried, begin.settings, retuned))
    try:
        candidates = begin.candidates(carried.plan.measured)
        outcome = _measured(begin, candidates, partial(tune_again, warm=carried.warm))
    except ProfileLostError:
        begin.tell(f"note: {_PROFILE_LOST}: every key is measured again, from the beginning")
        return _all_tuned(begin, all_again(carried, _PROFILE_LOST, begin.tell))
    table, report = outcome.table_and_report(begin)
    measured = len(carried.plan.measured)
    retuned = retuned_report(carried, outcome.tuning.against, outcome.samples, measured=measured)
    joined = joined_report(report, carried, begin.settings, retuned)
    return _written(begin, joined_table(table, carried), joined)


def _all_tuned(begin: _Beginning, carried: Carried | None) -> FinishedRun:
    """Tune all keys from the beginning, and compare them with a table before if there is one."""
    candidates = begin.candidates()
    whole = begin.request({}).shape
    earlier = None if carried is None else carried.warm
    outcome = _measured(begin, candidates, partial(tune, shape=whole, earlier=earlier))
    table, report = outcome.table_and_report(begin)
    if carried is not None:
        measured = len(outcome.tuning.keys)
        retuned = retuned_report(
            carried, outcome.tuning.against, outcome.samples, measured=measured
        )
        report = report.model_copy(update={"retuned": retuned})
    return _written(begin, table, report)


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
    candidates: Candidates | None = None,
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
        takes_recorded_steps=takes_recorded_steps(record, settings),
        places=places,
        laboratory=settings.laboratory,
        timing=settings.timing,
        tunes_nccl=kind.tunes_nccl,
        max_channels=settings.options.max_channels,
        measures_nccl=kind.measures_nccl,
    )


def _by_hash(
    candidates: Mapping[Operation, Sequence[Candidate]] | None,
) -> dict[str, Candidate]:
    return {c.content_hash: c for found in (candidates or {}).values() for c in found}


@dataclass(frozen=True)
class _Outcome:
    """The result of measuring, and its origin."""

    tuning: TuningResult
    tried: Sequence[Tried]
    origin: Origin
    timing: Timing
    samples: int
    """Samples in the log."""

    def table_and_report(self, begin: _Beginning) -> tuple[Table, Report]:
        """Build table and report of the keys that were measured."""
        topology = begin.topology
        table = build_table(topology, topology.fingerprint(), self.tuning, self.tried, self.origin)
        report = build_report(
            table, self.tuning, self.tried, begin.settings, self.timing, self.origin.provenance
        )
        if begin.record is not None:
            recorded = {
                "recorded_backend": self.origin.provenance.backend,
                "recorded_at": begin.record.of_run.begun_at,
            }
            report = report.model_copy(update=recorded)
        return table, report


class _Tuner(Protocol):
    """Tunes all keys or some."""

    def __call__(
        self,
        *,
        settings: RunSettings,
        spaces: SearchSpaces,
        log: MeasurementLog,
        progress: Progress,
        seconds_pass: bool,
        watch: Watch,
    ) -> TuningResult: ...


def _measured(begin: _Beginning, candidates: Candidates, tuner: _Tuner) -> _Outcome:
    """Open the backend and the log, and tune."""
    settings, request = begin.settings, begin.request(candidates)
    made = [request.schedules, *request.shapes.values()]
    recorded = () if begin.record is None else begin.record.of_run.schedules
    names = {content: found.name for own in made for content, found in own.items()}
    names |= {schedule.content_hash: schedule.name for schedule in recorded}
    begin.watch(SchedulesMade(names))
    if (note := cores_note(settings, candidates, request)) is not None:
        begin.tell(f"note: {note}")
    with (
        open_backend(settings.backend, request) as backend,
        MeasurementLog(
            begin.run.measurements,
            backend,
            begin.begun.identity,
            request.tell,
            several_shapes=bool(settings.shapes),
        ) as log,
    ):
        tuning = tuner(
            settings=settings,
            spaces=search_spaces(settings, candidates, request, log.ring_estimate_us),
            log=log,
            progress=begin.progress,
            seconds_pass=backend_kind(settings.backend).has_workers,
            watch=begin.watch,
        )
        source = log.contents.source  # All figures may be of an earlier process.
        provenance = source.provenance if source else backend.provenance
        origin = Origin(begin.begun.tuned_at, replace(provenance, machine=request.topology.name))
        timing = source.timing if source else timing_of(backend)
        samples = samples_in(log.contents)
    tried: list[Tried] = [*recorded] if settings.recorded_schedules else []
    tried += [c for of_shape in candidates.values() for found in of_shape.values() for c in found]
    return _Outcome(tuning, tried, origin, timing, samples)


def _written(begin: _Beginning, table: Table, report: Report) -> FinishedRun:
    """Write table, report and bundle."""
    write_atomically(begin.run.report, report.model_dump_json(indent=1) + "\n")
    write_atomically(begin.run.bundle, bundle_bytes(table))
    write_atomically(begin.run.table, table_to_parquet_bytes(table))
    return FinishedRun(begin.run, table, report, already_done=False)
