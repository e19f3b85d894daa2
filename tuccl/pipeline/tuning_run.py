"""`run`: carries a prepared run from its first stage to its table, and writes its record."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from tuccl.errors import UsageError
from tuccl.measuring.places import Places
from tuccl.pipeline.carried_table import Carried
from tuccl.pipeline.estimate import Estimate
from tuccl.pipeline.preparing import Prepared
from tuccl.pipeline.record_output import RecordOutput
from tuccl.pipeline.stages import initialize
from tuccl.records.recording import record_of
from tuccl.reports.finished_run import FinishedRun
from tuccl.trials.events import Watcher, unwatched
from tuccl.trials.shapes import shape_text
from tuccl.tuning.settings import describe_keys
from tuccl.words.progress import Progress
from tuccl.workspace.measurement_log import read_log
from tuccl.workspace.runs import Workspace


def run(
    prepared: Prepared,
    workspace: Workspace,
    record_to: RecordOutput | None,
    places: Places | None,
    progress: Callable[[], AbstractContextManager[Progress]],
    tell: Callable[[str], None],
    carried: Carried | None = None,
) -> FinishedRun:
    """Tune, or continue; then write the record if its file is given.

    Args:
        prepared: The run.
        workspace: Directory for the results.
        record_to: File of the record; None: no record.
        places: Hosts and devices of the workers, the ranks of an MPI job; None: this host.
        progress: Opens a receiver of the progress, and of events if it is a `Watcher`.
        tell: Receives messages for people, a line each.
        carried: The run before a change, whose table some keys may be kept from; None: none is.

    Raises:
        UsageError: the record's file is an input, or is the record of another run; or there are
            several shapes, which a record does not hold.
        WorkspaceError: the workspace or the record cannot be written.
        MeasurementError: the backend cannot go on.
    """
    topology, settings = prepared.topology, prepared.settings
    identity = settings.identity(topology)
    if record_to is not None:
        if settings.shapes:
            raise UsageError("--record keeps times of one shape: leave out --shapes, or --record")
        record_to.check_run(identity)
    tell(
        f"{topology.name}: {prepared.shape.ranks} GPUs on {prepared.shape.nodes} node(s); "
        f"{describe_keys(settings)}"
        + "".join(f"; {named.name}: {shape_text(named.shape)}" for named in settings.shapes)
    )
    for note in prepared.notes:
        tell(f"note: {note}")

    def announce(estimate: Estimate) -> None:
        if (line := estimate.line()) is not None:
            tell(line)

    with progress() as receiver:
        result = initialize(
            topology,
            settings,
            workspace,
            receiver,
            prepared.record,
            places,
            prepared.own_schedules,
            prepared.workload,
            announce=announce,
            tell=tell,
            watch=receiver.note if isinstance(receiver, Watcher) else unwatched,
            carried=carried,
        )
    if record_to is not None:
        _write_record(prepared, result, record_to, tell)
    return result


def _write_record(
    prepared: Prepared, result: FinishedRun, record_to: RecordOutput, tell: Callable[[str], None]
) -> None:
    topology = prepared.topology
    identity = prepared.settings.identity(topology)
    contents = read_log(result.run.measurements, identity, tell)
    record = record_of(contents, topology, prepared.shape, identity)
    record_to.write(record)
    tell(f"record of {len(record.rows)} configurations written to {record_to.path}")
    held_s, measured_s = contents.seconds, result.report.measuring_s
    if held_s < 0.999 * measured_s:
        tell(
            "note: the record is not all that was measured: "
            f"{result.run.measurements} has lost lines since, "
            f"and holds {held_s:.1f} s of {measured_s:.1f} s"
        )
