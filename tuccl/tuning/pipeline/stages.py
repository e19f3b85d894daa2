"""The pipeline of `tuccl init`: machine, sketches, schedules, tuning, table, bundle.

Each stage leaves its result in the workspace and is skipped when it is already there; measurements
are never repeated. Killed at any moment and started again, a run ends with the same table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.store import table_to_parquet_bytes
from lookup_tables.table import Entry, ScheduleConfig, Table
from probes.topology.graph import Topology
from probes.topology.json_form import topology_to_json
from probes.topology.unmeasured import unmeasured
from sketches.sketch import Sketch
from tuccl.crew.places import Places
from tuccl.crew.pool import workers_for
from tuccl.errors import ConfigurationFailedError, ProfileLostError, WorkspaceError
from tuccl.measuring.backends.backend_choice import (
    BackendRequest,
    backend_kind,
    has_executor,
    open_backend,
    require_backend,
)
from tuccl.models.communicator_parts import has_communicators, is_touched
from tuccl.quantities import count_of
from tuccl.reports.evidence import Evidence, evidence_of_backend
from tuccl.reports.host_record import (
    host_record_text,
    read_host_record,
    record_node,
)
from tuccl.reports.job_gains import obstacle_to
from tuccl.reports.report import FreeReport, Report
from tuccl.reports.tuning_result import TuningResult, finished
from tuccl.schedules.saved_candidates import are_saved
from tuccl.search.statistics.estimators import geometric_mean
from tuccl.search.trials.backend import JobTable
from tuccl.search.trials.config import Config, Task
from tuccl.search.trials.events import Progress, RunBegins, SchedulesMade, Watch, Watcher, unwatched
from tuccl.search.trials.placement import ANYWHERE
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
    RunEstimate,
    across_hosts_seconds,
    measuring_seconds,
    schedules_seconds,
    search_seconds,
)
from tuccl.tuning.pipeline.preparing import Prepared
from tuccl.tuning.pipeline.results import RunOrigin, Tried, build_report, build_table
from tuccl.tuning.pipeline.search_spaces import Candidates, cores_note, search_spaces
from tuccl.tuning.pipeline.shape_schedules import MachinePart, candidates_of, parts_of, sketches_of
from tuccl.tuning.results import TunedKeys
from tuccl.tuning.run_keys import keys_of
from tuccl.tuning.searches import TuningMeans
from tuccl.tuning.settings import RunSettings
from tuccl.tuning.switches import added_line, keys_near_switches
from tuccl.tuning.tune import tune, tune_again
from tuccl.tuning.whole_table import hold_whole
from tuccl.workloads.workload_file import write_workload
from tuccl.workspace.atomic_file import require_room, write_atomically
from tuccl.workspace.carried_measurements import carry_measurements
from tuccl.workspace.measurement_log import MeasurementLog
from tuccl.workspace.runs import Run, RunRecord, Workspace

_PROFILE_LOST = (
    "the old table's process profile takes more than the floor allows from a key of this machine"
)


def initialize(
    prepared: Prepared,
    workspace: Workspace,
    progress: Progress,
    say: Callable[[str], None] = lambda _: None,
    places: Places | None = None,
    carried: Carried | None = None,
) -> TuningResult:
    """Tune a machine, or continue where an earlier run stopped.

    Args:
        prepared: The run.
        workspace: Directory for the results.
        progress: Receives the progress of each stage, and events if it is a `Watcher`.
        say: Receives the estimated time of the run, and failures of workers, a line each.
        places: Hosts and devices of the workers; None: this host.
        carried: The run before a change, whose table some keys may be kept from; None: none is.

    Raises:
        WorkspaceError: The workspace is busy or cannot be written.
        MeasurementError: The backend cannot go on; what it measured is kept.
    """
    topology, settings, identity = prepared.topology, prepared.settings, prepared.identity
    done = finished(workspace.run(identity))
    if done is not None and workspace.is_current(identity):
        return done
    with workspace.lock(identity) as run:
        done = finished(run)
        if done is None:
            require_room(run.measurements)
            require_backend(settings.backend, prepared.request(places=places))
            begun = _begin(run, identity, settings)
            if prepared.of_all_hosts is not None:
                _carry_over(prepared.of_all_hosts, prepared, workspace, say)
            write_atomically(run.topology, topology_to_json(topology))
            if backend_kind(settings.backend).measures_nccl:
                _record_host(run, topology)
            if prepared.workload is not None:
                write_workload(run.workload, prepared.workload)
            begin = _Beginning(prepared, run, begun, progress, say, places)
            done = _retuned(begin, carried) if carried is not None else _all_tuned(begin, None)
            run.write_record(replace(begun, complete=True))
        workspace.set_current(identity)
    return done


def _carry_over(
    earlier: Prepared, prepared: Prepared, workspace: Workspace, say: Callable[[str], None]
) -> None:
    """Begin the log of a run on the hosts that are left with what was measured of their shapes.

    Communicators across all hosts had other members, and are measured anew.
    """
    before, now = earlier.topology, prepared.topology
    shapes = {
        shape
        for shape in prepared.settings.shapes_of(prepared.shape)
        if has_communicators(before, shape) and not is_touched(before, now, shape)
    }
    taken = carry_measurements(
        workspace.run(earlier.identity).measurements,
        earlier.identity,
        workspace.run(prepared.identity).measurements,
        prepared.identity,
        lambda task: task.shape in shapes and task.placement == ANYWHERE,
    )
    if taken:
        say(
            f"of {before.node_count} nodes {now.node_count} are left: "
            f"{count_of(taken, 'measurement')} of communicators that they have are taken over"
        )


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
    """A run that has begun, and its listeners."""

    prepared: Prepared
    run: Run
    begun: RunRecord
    progress: Progress
    say: Callable[[str], None]
    places: Places | None

    @property
    def settings(self) -> RunSettings:
        """Settings of the run."""
        return self.prepared.settings

    @property
    def watch(self) -> Watch:
        """Receiver of the run's events."""
        return self.progress.note if isinstance(self.progress, Watcher) else unwatched

    def candidates(self, measured: Sequence[Task] | None = None) -> Candidates:
        """Make the schedules for the keys that are measured; None: for all."""
        topology, settings = self.prepared.topology, self.prepared.settings
        shapes = None if measured is None else {task.shape for task in measured}
        parts = [
            (part, sketches_of(part, settings))
            for part in parts_of(topology, settings, self.run)
            if shapes is None or part.shape in shapes
        ]
        if shapes is None and (line := _estimate(self.prepared, parts, self.run).line()):
            self.say(line)
        self.tell(keys_of(settings, self.prepared.shape) if measured is None else measured)
        return {
            part.shape: candidates_of(
                part, settings, sketches, self.prepared.own_schedules, self.progress
            )
            for part, sketches in parts
        }

    def tell(self, keys: Sequence[Task]) -> None:
        """Report the keys that are measured."""
        settings = self.settings
        self.watch(
            RunBegins(
                self.prepared.topology.name,
                settings.backend,
                tuple(keys),
                settings.budget_s,
                runs_schedules=has_executor(settings.backend, self.prepared.record),
            )
        )

    def with_keys_near_switches(self, log: MeasurementLog) -> _Beginning:
        """Return the run with the keys that what NCCL tells adds to it, and say which they are.

        A replay has those of its record, and a workload names its calls.
        """
        prepared, settings = self.prepared, self.settings
        if prepared.record is None and settings.near_switches:
            plain = keys_of(replace(settings, added=()), prepared.shape)
            # What NCCL itself chooses never runs keys whose sums must not move.
            plain = [task for task in plain if not settings.keeps_sums(task)]
            asked = [task for task in plain if task.operation.asks_tuner]
            found = keys_near_switches(asked, log.cost_table, settings.budget_s)
            settings = replace(settings, added=tuple(found.items()))
        begin = replace(self, prepared=replace(prepared, settings=settings))
        if settings.added:
            begin.tell(keys_of(settings, prepared.shape))
            begin.say(added_line(settings.added))
        return begin

    def request(self, candidates: Candidates) -> BackendRequest:
        """Return the request that opens the backend, with these schedules."""
        return replace(self.prepared.request(candidates, self.places), tell=self.say)


def _retuned(begin: _Beginning, carried: Carried) -> TuningResult:
    """Tune the keys that a change touches, or all of them where it touches the table as a whole."""
    if not carried.plan.is_partial:
        return _all_tuned(begin, carried)
    if not carried.plan.measured:
        table = joined_table(empty_table(begin.prepared.topology, carried.warm.profile), carried)
        retuned = retuned_report(carried, (), 0, measured=0)
        return _written(begin, table, joined_report(None, carried, begin.settings, retuned))
    try:
        candidates = begin.candidates(carried.plan.measured)
        outcome = _measured(begin, candidates, partial(tune_again, warm=carried.warm), whole=False)
    except ProfileLostError:
        begin.say(f"note: {_PROFILE_LOST}: every key is measured again, from the beginning")
        return _all_tuned(begin, all_again(carried, _PROFILE_LOST, begin.say))
    table, report = outcome.table_and_report(begin)
    measured = len(carried.plan.measured)
    retuned = retuned_report(carried, outcome.tuning.against, outcome.samples, measured=measured)
    joined = joined_report(report, carried, begin.settings, retuned)
    return _written(begin, joined_table(table, carried), joined)


def _all_tuned(begin: _Beginning, carried: Carried | None) -> TuningResult:
    """Tune all keys from the beginning, and compare them with a table before if there is one."""
    candidates = begin.candidates()
    whole = begin.prepared.shape
    earlier = None if carried is None else carried.warm
    outcome = _measured(begin, candidates, partial(tune, shape=whole, earlier=earlier), whole=True)
    table, report = outcome.table_and_report(begin)
    if carried is not None:
        measured = len(outcome.tuning.keys)
        retuned = retuned_report(
            carried, outcome.tuning.against, outcome.samples, measured=measured
        )
        report = report.model_copy(update={"retuned": retuned})
    return _written(begin, table, report)


def _begin(run: Run, identity: str, settings: RunSettings) -> RunRecord:
    """Write and return the record of a run that starts or continues, with its options."""
    options = asdict(settings.options)
    try:
        record = run.record()
    except WorkspaceError:
        record = None  # Damaged, but the log and the options have all that it needs.
    if record is None:
        now = datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        record = RunRecord(identity=identity, options=options, complete=False, tuned_at=now)
    record = replace(record, options=options, complete=False)
    run.write_record(record)
    return record


def _estimate(
    prepared: Prepared, parts: Sequence[tuple[MachinePart, Sequence[Sketch]]], run: Run
) -> RunEstimate:
    """Estimate the time that the rest of a run takes."""
    settings = prepared.settings
    kind = backend_kind(settings.backend)
    schedules_s = search_s = 0.0
    for part, sketches in parts:
        sizes = {each: settings.sizes_of(each, part.shape) for each in settings.operations}
        search_s += search_seconds(sum(map(len, sizes.values())), sketches)
        missing = {
            operation: own
            for operation, own in sizes.items()
            if own and not are_saved(part.schedules / operation.value)
        }
        if sketches:
            workers = workers_for(sketches[0].ranks)
            schedules_s += sum(
                schedules_seconds([operation], sketches, own, workers)
                for operation, own in missing.items()
            )
        elif settings.schedules:
            schedules_s += across_hosts_seconds(part.shape, len(missing))
    if kind.has_workers:
        search_s = measuring_seconds(make_plan(settings, prepared.request()))
    begun = run.measurements.is_file()
    return RunEstimate(schedules_s, search_s, measures=kind.has_workers, begun=begun)


@dataclass(frozen=True)
class _Outcome:
    """The result of measuring, and its origin."""

    tuning: TunedKeys
    tried: Sequence[Tried]
    origin: RunOrigin
    timing: Timing
    samples: int
    """Samples in the log."""
    settings: RunSettings
    """With the keys that were added."""

    def table_and_report(self, begin: _Beginning) -> tuple[Table, Report]:
        """Build table and report of the keys that were measured."""
        topology = begin.prepared.topology
        table = build_table(
            *(topology, topology.fingerprint(), self.tuning, self.tried, self.origin),
            invariant=begin.settings.options.invariant,
        )
        report = build_report(
            table,
            self.tuning,
            self.tried,
            self.settings,
            self.timing,
            self.origin.provenance,
        )
        if table.is_invariant:
            report = report.model_copy(update={"free": _free_report(begin, report)})
        if evidence_of_backend(self.origin.provenance.backend) is Evidence.MODELLED:
            report = report.model_copy(update={"assumed": unmeasured(topology, of_nccl=True)})
        if begin.prepared.record is not None:
            recorded = {
                "recorded_backend": self.origin.provenance.backend,
                "recorded_at": begin.prepared.record.of_run.begun_at,
            }
            report = report.model_copy(update=recorded)
        return table, report


def _free_report(begin: _Beginning, report: Report) -> FreeReport | None:
    """Compare the keys whose sums do not move with those of the same run whose sums may.

    Its own samples do not tell: calls that move sums were not tried.
    """
    settings = begin.settings
    free = replace(settings, options=replace(settings.options, invariant=False))
    identity = free.identity(begin.prepared.topology)
    other = finished(Run(begin.run.root.with_name(identity)))
    if other is None:
        return None
    gains = {(key.operation, key.size_bytes, key.shape): key.gain for key in other.report.keys}
    logs = [
        math.log(gains[place] / key.gain)
        for key in report.keys
        if (place := (key.operation, key.size_bytes, key.shape)) in gains and key.operation.reduces
    ]
    if not logs:
        return None
    return FreeReport(run=identity, keys=len(logs), ratio=geometric_mean(logs))


def _job_table(
    begin: _Beginning, tried: Sequence[Tried], origin: RunOrigin, tuning: TunedKeys
) -> JobTable:
    """Return the table as a job loads it."""
    topology = begin.prepared.topology
    table = build_table(
        *(topology, topology.fingerprint(), tuning, tried, origin),
        invariant=begin.settings.options.invariant,
    )
    entries = tuple(
        entry if entry.schedule is None else _serving_windows(entry, entry.schedule)
        for entry in table.entries
    )
    bundle = bundle_bytes(replace(table, entries=entries))
    winners = {key.task: key.decision.winner for key in tuning.keys}
    runs_schedules = has_executor(begin.settings.backend, begin.prepared.record) and any(
        obstacle_to(entry, table, Evidence.MEASURED, has_executor=True) is None
        for entry in table.entries
        if entry.schedule is not None
    )
    return JobTable(
        f"{bundle_crc(bundle):08x}",
        bundle,
        tuning.profile,
        {task: config for task, config in winners.items() if config is not None},
        runs_schedules,
    )


def _serving_windows(entry: Entry, schedule: ScheduleConfig) -> Entry:
    """Return an entry that serves calls on registered buffers, too, so that they can be timed."""
    return replace(entry, schedule=replace(schedule, in_windows=True))


def _measured(
    begin: _Beginning,
    candidates: Candidates,
    tuner: Callable[[TuningMeans], TunedKeys],
    *,
    whole: bool,
) -> _Outcome:
    """Open the backend and the log, and tune.

    Args:
        begin: The run.
        candidates: The schedules.
        tuner: Tunes the keys.
        whole: Whether the keys are those of the whole table, which is then held as a whole.
    """
    request = begin.request(candidates)
    made = [request.schedules, *request.shapes.values()]
    recorded = () if begin.prepared.record is None else begin.prepared.record.of_run.schedules
    names = {content: found.name for own in made for content, found in own.items()}
    names |= {schedule.content_hash: schedule.name for schedule in recorded}
    begin.watch(SchedulesMade(names))
    if (note := cores_note(begin.settings, candidates, request)) is not None:
        begin.say(f"note: {note}")
    with (
        open_backend(begin.settings.backend, request) as backend,
        MeasurementLog(
            begin.run.measurements,
            backend,
            begin.begun.identity,
            request.tell,
        ) as log,
    ):
        if whole:
            begin = begin.with_keys_near_switches(log)
        settings = begin.settings
        means = TuningMeans(
            settings,
            search_spaces(settings, candidates, request, log.cost_table, partial(_is_right, log)),
            log,
            begin.progress,
            begin.watch,
            seconds_pass=backend_kind(settings.backend).has_workers,
        )
        tuning = tuner(means)
        tried: list[Tried] = [*recorded] if settings.recorded_schedules else []
        tried += [
            c for of_shape in candidates.values() for found in of_shape.values() for c in found
        ]
        source = log.contents.source  # All figures may be of an earlier process.
        provenance = source.provenance if source else backend.provenance
        origin = RunOrigin(begin.begun.tuned_at, replace(provenance, machine=request.topology.name))
        timing = source.timing if source else timing_of(backend)
        if whole:
            table_of = partial(_job_table, begin, tried, origin)
            tuning = hold_whole(tuning, means, begin.prepared.shape, table_of)
        samples = samples_in(log.contents)
    return _Outcome(tuning, tried, origin, timing, samples, settings)


def _is_right(log: MeasurementLog, task: Task, config: Config) -> bool:
    """Return whether a call delivers the data that it must, before anything of it is booked."""
    try:
        log.check(task, config)
    except ConfigurationFailedError:
        return False
    return True


def _written(begin: _Beginning, table: Table, report: Report) -> TuningResult:
    """Write table, report and bundle."""
    write_atomically(begin.run.report, report.model_dump_json(indent=1) + "\n")
    write_atomically(begin.run.bundle, bundle_bytes(table))
    write_atomically(begin.run.table, table_to_parquet_bytes(table))
    return TuningResult(table, begin.run, report, already_done=False)
