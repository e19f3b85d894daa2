"""The pipeline of `tuccl init`: machine, sketches, schedules, tuning, table, bundle.

Each stage leaves its result in the workspace and is skipped when it is already there; measurements
are never repeated. Killed at any moment and started again, a run ends with the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.store import table_to_parquet_bytes
from lookup_tables.table import Operation, Shape
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
from tuccl.models.siblings import SiblingMachines
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
            parts = [(part, _sketches(part, settings)) for part in _parts(topology, settings, run)]
            announce(_estimate(topology, settings, record, parts, run))
            candidates = {
                part.shape: _candidates(part, settings, sketches, own_schedules, progress)
                for part, sketches in parts
            }
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


@dataclass(frozen=True)
class _Part:
    """The part of the machine that a communicator of one shape spans, and its schedules' files."""

    shape: Shape
    topology: Topology
    is_whole: bool
    sketches: Path
    schedules: Path
    stage: str
    """Name of making its schedules, for people."""


def _parts(topology: Topology, settings: RunSettings, run: Run) -> list[_Part]:
    """The parts of the machine whose communicators are tuned."""
    whole = communicator_shape(topology)
    machines = SiblingMachines(topology)
    parts = []
    for shape in settings.shapes_of(whole):
        name = "" if shape == whole else f"{shape.ranks}x{shape.nodes}"
        parts.append(
            _Part(
                shape,
                machines.slowest(shape),
                shape == whole,
                run.sketches / name,
                run.schedules / name,
                f"schedules {name}".strip(),
            )
        )
    return parts


def _sketches(part: _Part, settings: RunSettings) -> Sequence[Sketch]:
    """Sketches of a part of the machine, saved in the run; none where none is needed."""
    if not settings.schedules or _runs_phases(settings, part):
        return ()
    operations = [Collective(operation.value) for operation in settings.operations]
    sketches = guided(operations, sketch_candidates(part.topology))
    for sketch in sketches:
        write_atomically(part.sketches / f"{sketch.name}.json", sketch_to_json(sketch))
    return sketches


def _estimate(
    topology: Topology,
    settings: RunSettings,
    record: Record | None,
    parts: Sequence[tuple[_Part, Sequence[Sketch]]],
    run: Run,
) -> Estimate:
    """Estimate of the time that the rest of a run takes."""
    kind = backend_kind(settings.backend)
    schedules_s = search_s = 0.0
    for part, sketches in parts:
        missing = [
            operation
            for operation in settings.operations
            if not are_saved(part.schedules / operation.value)
        ]
        keys = len(settings.operations) * len(settings.sizes_bytes)
        search_s += search_seconds(keys, sketches)
        if sketches and missing:
            workers = workers_for(sketches[0].ranks)
            schedules_s += schedules_seconds(missing, sketches, settings.sizes_bytes, workers)
    if kind.has_workers:
        plan = make_plan(settings, backend_request(topology, settings, record))
        search_s = measuring_seconds(plan)
    begun = run.measurements.is_file()
    return Estimate(schedules_s, search_s, measures=kind.has_workers, begun=begun)


def _candidates(
    part: _Part,
    settings: RunSettings,
    sketches: Sequence[Sketch],
    own_schedules: Sequence[OwnSchedule],
    progress: Progress,
) -> dict[Operation, tuple[Candidate, ...]]:
    """Schedules on the sketches of a part of the machine; the user's own are for all GPUs."""
    if not settings.schedules:
        return {}
    machine = whole_machine(part.topology)
    if _runs_phases(settings, part):
        found = _phased(settings, part, machine)
    else:
        found = _schedules(settings, part, sketches, machine, progress)
    if backend_kind(settings.backend).has_executor and part.shape.nodes == 1:
        found = {
            operation: with_kernels(operation, candidates, sketches, machine, settings.sizes_bytes)
            for operation, candidates in found.items()
        }
    if not part.is_whole:
        return found
    own = own_candidates(own_schedules, sketches, machine, settings.sizes_bytes)
    return with_own(found, own)


def _runs_phases(settings: RunSettings, part: _Part) -> bool:
    """Whether plans of phases are searched, which the executor runs on several nodes.

    It runs nothing else there, so no other schedules are made; a user's own are searched as well
    where they are modelled.
    """
    return part.shape.nodes > 1 and backend_kind(settings.backend).runs_schedules


def _phased(
    settings: RunSettings, part: _Part, machine: Sketch
) -> dict[Operation, tuple[Candidate, ...]]:
    """Load the saved plans, or make and save them."""
    found: dict[Operation, tuple[Candidate, ...]] = {}
    if not part.topology.ranks_per_node:
        return dict.fromkeys(settings.operations, ())
    grid = grid_figures(part.topology)
    for operation in settings.operations:
        directory = part.schedules / operation.value
        candidates = load_candidates(directory, [machine])
        if candidates is None:
            candidates = phased_candidates(operation, grid, machine, settings.sizes_bytes)
            save_candidates(directory, candidates)
        found[operation] = candidates
    return found


def _schedules(
    settings: RunSettings,
    part: _Part,
    sketches: Sequence[Sketch],
    machine: Sketch,
    progress: Progress,
) -> dict[Operation, tuple[Candidate, ...]]:
    """Load the saved schedules; generate and save the missing ones, operation by operation."""
    found: dict[Operation, tuple[Candidate, ...]] = {}
    total = len(settings.operations) * len(sketches)
    saved = {
        operation: load_candidates(part.schedules / operation.value, sketches)
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
                progress(part.stage, first + done, total, share=share)

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
                save_candidates(part.schedules / operation.value, candidates)
            found[operation] = candidates
    progress(part.stage, total, total, share=1.0)
    return found


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
        tuning = tune(settings, request.shape, spaces, log, progress, seconds_pass=seconds_pass)
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
