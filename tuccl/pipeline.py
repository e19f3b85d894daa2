"""The pipeline of `tuccl init`: machine, sketches, schedules, tuning, table, bundle.

Each stage leaves its result in the workspace and is skipped when it is already there; measurements
are never repeated. Killed at any moment and started again, a run ends with the same table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pydantic import JsonValue

from lookup_tables.bundle_writer import bundle_bytes
from lookup_tables.store import table_to_parquet_bytes
from lookup_tables.table import Operation
from probes.topology import Topology
from probes.topology_json import topology_to_json
from sketches.candidates import sketch_candidates, whole_machine
from sketches.sketch import Sketch
from sketches.sketch_json import sketch_to_json
from synthesizer.collectives import Collective
from synthesizer.synthesize import SynthesisOptions
from tuccl.atomic_file import write_atomically
from tuccl.backend_choice import (
    BackendRequest,
    backend_kind,
    builtins_of,
    keeps_128_bytes,
    open_backend,
    promising_of,
)
from tuccl.backends.figures import communicator_shape
from tuccl.backends.timing import Timing, timing_of
from tuccl.candidates import Candidate, load_candidates, make_candidates, save_candidates
from tuccl.errors import WorkspaceError
from tuccl.executor_schedules import executor_space, with_kernels
from tuccl.finished_run import FinishedRun, finished
from tuccl.guidance import guided
from tuccl.measurement_log import MeasurementLog
from tuccl.measuring.places import Places
from tuccl.records.record import Record
from tuccl.results import Origin, build_report, build_table
from tuccl.search.config import Task
from tuccl.search.presets import executor_families
from tuccl.search.space import Space
from tuccl.settings import RunSettings
from tuccl.tuning import Progress, SearchSpaces, tune
from tuccl.workers import worker_processes, workers_for
from tuccl.workspace import Run, RunRecord, Workspace


def initialize(
    topology: Topology,
    settings: RunSettings,
    workspace: Workspace,
    options: dict[str, JsonValue],
    progress: Progress,
    record: Record | None = None,
    places: Places | None = None,
) -> FinishedRun:
    """Tune a machine, or continue where an earlier run stopped.

    Args:
        topology: A valid machine.
        settings: What to tune.
        workspace: Where results go.
        options: The command line's options, kept for `retune`.
        progress: Told about each stage.
        record: What is replayed, where the settings say so.
        places: Where workers run, where the backend has some; None: on this host.

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
            begun = _begin(run, identity, options)
            write_atomically(run.topology, topology_to_json(topology))
            candidates = _candidates(topology, settings, run, progress)
            request = backend_request(topology, settings, record, candidates, places)
            done = _tune(settings, candidates, request, run, begun, progress)
            run.write_record(replace(begun, complete=True))
        workspace.set_current(identity)
    return done


def _begin(run: Run, identity: str, options: dict[str, JsonValue]) -> RunRecord:
    """The record of a run that starts or continues."""
    try:
        record = run.record()
    except WorkspaceError:
        record = None  # Damaged: nothing in it that the log and the options do not say.
    if record is None:
        now = datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        record = RunRecord(identity=identity, options=options, complete=False, tuned_at=now)
    record = replace(record, options=options, complete=False)
    run.write_record(record)
    return record


def _candidates(
    topology: Topology, settings: RunSettings, run: Run, progress: Progress
) -> dict[Operation, tuple[Candidate, ...]]:
    """Schedules on the sketches of the machine; none where there is nothing that runs them."""
    if not settings.schedules:
        return {}
    operations = [Collective(operation.value) for operation in settings.operations]
    sketches = guided(operations, sketch_candidates(topology))
    for sketch in sketches:
        write_atomically(run.sketches / f"{sketch.name}.json", sketch_to_json(sketch))
    machine = whole_machine(topology)
    found = _schedules(settings, sketches, machine, run, progress)
    if not backend_kind(settings.backend).has_executor:
        return found
    return {
        operation: with_kernels(operation, candidates, sketches, machine, settings.sizes_bytes)
        for operation, candidates in found.items()
    }


def _schedules(
    settings: RunSettings,
    sketches: Sequence[Sketch],
    machine: Sketch,
    run: Run,
    progress: Progress,
) -> dict[Operation, tuple[Candidate, ...]]:
    """What an earlier run saved; what is missing is made and saved, operation by operation."""
    options = SynthesisOptions(time_limit_s=settings.solver_seconds)
    found: dict[Operation, tuple[Candidate, ...]] = {}
    total = len(settings.operations) * len(sketches)
    saved = {
        operation: load_candidates(run.schedules / operation.value, sketches)
        for operation in settings.operations
    }
    count = workers_for(machine.ranks) if None in saved.values() else 1
    with worker_processes(count) as workers:
        for number, (operation, candidates) in enumerate(saved.items()):

            def made(done: int, before: int = number * len(sketches)) -> None:
                progress("schedules", before + done, total)

            made(0)
            if candidates is None:
                candidates = make_candidates(  # noqa: PLW2901 - made where it was not saved
                    Collective(operation.value),
                    sketches,
                    machine,
                    settings.sizes_bytes,
                    options,
                    made,
                    workers,
                )
                save_candidates(run.schedules / operation.value, candidates)
            found[operation] = candidates
    progress("schedules", total, total)
    return found


def backend_request(
    topology: Topology,
    settings: RunSettings,
    record: Record | None,
    candidates: Mapping[Operation, Sequence[Candidate]] | None = None,
    places: Places | None = None,
) -> BackendRequest:
    """What a run's backend is opened with, schedules only where there are candidates already."""
    kind = backend_kind(settings.backend)
    all_candidates = [c for found in (candidates or {}).values() for c in found]
    return BackendRequest(
        topology=topology,
        shape=communicator_shape(topology) if record is None else record.shape,
        seed=settings.seed,
        spread=settings.spread,
        model=settings.model,
        schedules={c.content_hash: (c.algorithm, c.sketch) for c in all_candidates},
        record=record,
        places=places,
        fake_nodes=settings.fake_nodes,
        share_gpus=settings.share_gpus,
        timing=Timing(graph=settings.graphs, in_place=settings.in_place),
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
            return executor_space(promising, ll128=ll128)
        hashes = [c.content_hash for c in promising]
        return Space("executor", executor_families(hashes, ll128=ll128))

    spaces = SearchSpaces(partial(builtins_of, request), schedules, partial(promising_of, request))
    with (
        open_backend(settings.backend, request) as backend,
        MeasurementLog(run.measurements, backend, begun.identity) as log,
    ):
        tuning = tune(settings, request.shape, spaces, log, progress)
        source = log.contents.source  # Of the figures, which may all be of an earlier process.
        origin = Origin(begun.tuned_at, source.versions if source else backend.versions)
        timing = source.timing if source else timing_of(backend)
    topology = request.topology
    table = build_table(topology, topology.fingerprint(), tuning, candidates, origin)
    report = build_report(tuning, candidates, settings, timing)
    write_atomically(run.report, report.model_dump_json(indent=1) + "\n")
    write_atomically(run.bundle, bundle_bytes(table))
    write_atomically(run.table, table_to_parquet_bytes(table))
    return FinishedRun(run, table, report, already_done=False)
