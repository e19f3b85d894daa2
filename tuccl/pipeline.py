"""The pipeline of `tuccl init`: machine, sketches, schedules, tuning, table, bundle.

Each stage leaves its result in the workspace and is skipped when it is already there; measurements
are never repeated. Killed at any moment and started again, a run ends with the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from lookup_tables.bundle import bundle_bytes
from lookup_tables.store import table_from_parquet_bytes, table_to_parquet_bytes
from lookup_tables.table import Operation, Table
from probes.topology import Topology
from probes.topology_json import topology_to_json
from sketches.candidates import sketch_candidates, whole_machine
from sketches.sketch import Sketch
from sketches.sketch_json import sketch_to_json
from synthesizer.collectives import Collective
from synthesizer.synthesize import SynthesisOptions
from tuccl.atomic_file import write_atomically
from tuccl.backends.figures import communicator_shape
from tuccl.backends.simulated import SimulatedBackend
from tuccl.candidates import Candidate, load_candidates, make_candidates, save_candidates
from tuccl.errors import WorkspaceError
from tuccl.measurement_log import MeasurementLog
from tuccl.results import Origin, build_table, report_json
from tuccl.search.config import Task
from tuccl.settings import RunSettings
from tuccl.tuning import tune
from tuccl.workspace import RunRecord, Workspace

Progress = Callable[[str, int, int], None]
"""`progress(stage, done, total)`."""


@dataclass(frozen=True)
class InitResult:
    """What `init` ended with."""

    table: Table
    already_done: bool
    """Whether the table was there before."""


def is_complete(workspace: Workspace, identity: str) -> bool:
    """Whether the workspace holds the finished table of this run.

    Raises:
        WorkspaceError: when it holds another run.
    """
    record = workspace.record()
    if record is None:
        return False
    if record.identity != identity:
        raise WorkspaceError(
            f"workspace {workspace.root} belongs to another machine or other options; use another "
            "--workspace, or `tuccl retune` if the machine changed"
        )
    return record.complete and workspace.table.exists() and workspace.bundle.exists()


def initialize(
    topology: Topology,
    settings: RunSettings,
    workspace: Workspace,
    options: dict[str, Any],
    progress: Progress,
) -> InitResult:
    """Tune a machine, or continue where an earlier run stopped.

    Args:
        topology: A valid machine.
        settings: What to tune.
        workspace: Where results go.
        options: The command line's options, kept for `retune`.
        progress: Told about each stage.

    Raises:
        WorkspaceError: when the workspace is busy, unwritable, or holds another run.
    """
    fingerprint = topology.fingerprint()
    identity = settings.identity(fingerprint)
    if is_complete(workspace, identity):
        return InitResult(read_table(workspace), already_done=True)
    sketches = sketch_candidates(topology)
    with workspace.lock():
        if is_complete(workspace, identity):
            return InitResult(read_table(workspace), already_done=True)
        record = workspace.record() or RunRecord(
            identity=identity, options=options, complete=False, tuned_at=_now()
        )
        workspace.write_record(record)
        write_atomically(workspace.topology, topology_to_json(topology))
        for sketch in sketches:
            path = workspace.sketches / f"{sketch.name}.json"
            write_atomically(path, sketch_to_json(sketch))
        machine = whole_machine(topology)
        candidates = _schedules(settings, sketches, machine, workspace, progress)
        table = _tune(topology, settings, candidates, workspace, record, progress)
        workspace.write_record(replace(record, complete=True))
    return InitResult(table, already_done=False)


def read_table(workspace: Workspace) -> Table:
    """The finished table of a workspace.

    Raises:
        WorkspaceError: when there is none.
        TableFileError: when it is damaged.
    """
    try:
        data = workspace.table.read_bytes()
    except OSError as error:
        raise WorkspaceError(
            f"no table in workspace {workspace.root} ({error.strerror}); run `tuccl init` first"
        ) from error
    return table_from_parquet_bytes(data, str(workspace.table))


def _schedules(
    settings: RunSettings,
    sketches: Sequence[Sketch],
    machine: Sketch,
    workspace: Workspace,
    progress: Progress,
) -> dict[Operation, tuple[Candidate, ...]]:
    options = SynthesisOptions(time_limit_s=settings.solver_seconds)
    found: dict[Operation, tuple[Candidate, ...]] = {}
    for done, operation in enumerate(settings.operations):
        progress("schedules", done, len(settings.operations))
        directory = workspace.schedules / operation.value
        candidates = load_candidates(directory, sketches)
        if candidates is None:
            collective = Collective(operation.value)
            candidates = make_candidates(
                collective, sketches, machine, settings.sizes_bytes, options
            )
            save_candidates(directory, candidates)
        found[operation] = candidates
    progress("schedules", len(settings.operations), len(settings.operations))
    return found


def _tune(
    topology: Topology,
    settings: RunSettings,
    candidates: Mapping[Operation, Sequence[Candidate]],
    workspace: Workspace,
    record: RunRecord,
    progress: Progress,
) -> Table:
    backend = SimulatedBackend(
        topology,
        {c.content_hash: (c.algorithm, c.sketch) for found in candidates.values() for c in found},
        seed=settings.seed,
        spread=settings.spread,
    )

    def schedules_for(task: Task) -> list[str]:
        found = candidates.get(task.operation, ())
        return [c.content_hash for c in found if c.promises_for(task.size_bytes)]

    with MeasurementLog(workspace.measurements, backend, record.identity) as log:
        tuning = tune(settings, communicator_shape(topology), schedules_for, log, progress)
    origin = Origin(record.tuned_at, backend.versions)
    table = build_table(topology, topology.fingerprint(), tuning, candidates, origin)
    write_atomically(workspace.report, report_json(tuning, candidates, backend.name))
    write_atomically(workspace.bundle, bundle_bytes(table))
    write_atomically(workspace.table, table_to_parquet_bytes(table))
    return table


def _now() -> str:
    return datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
