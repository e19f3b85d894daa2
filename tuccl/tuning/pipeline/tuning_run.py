"""`run`: carries a prepared run from its first stage to its table, and writes its record."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from tuccl.measuring.records.record import NOT_RECORDED
from tuccl.measuring.records.recording import record_of
from tuccl.measuring.workers.places import Places
from tuccl.quantities import count_of
from tuccl.reports.finished_run import FinishedRun
from tuccl.search.trials.config import STOCK
from tuccl.search.trials.events import Progress, Watcher, unwatched
from tuccl.search.trials.shapes import shape_text
from tuccl.tuning.pipeline.carried_table import Carried
from tuccl.tuning.pipeline.estimate import Estimate
from tuccl.tuning.pipeline.preparing import Prepared
from tuccl.tuning.pipeline.record_output import RecordOutput
from tuccl.tuning.pipeline.searching.recorded_search import recorded_run
from tuccl.tuning.pipeline.shape_schedules import saved_schedules
from tuccl.tuning.pipeline.stages import backend_request, initialize
from tuccl.tuning.run_keys import keys_of
from tuccl.tuning.settings import describe_keys
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
        UsageError: the record's file is an input, or is the record of another run.
        WorkspaceError: the workspace or the record cannot be written.
        MeasurementError: the backend cannot go on.
    """
    topology, settings = prepared.topology, prepared.settings
    identity = settings.identity(topology)
    if record_to is not None:
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
    if prepared.record is not None:
        contents = read_log(result.run.measurements, identity)
        if missing := sum(found.failed == NOT_RECORDED for found in contents.all):
            tell(
                f"note: {NOT_RECORDED}: {count_of(missing, 'configuration')} that the search tried"
            )
    if record_to is not None:
        _write_record(prepared, result, record_to, places, tell, carried)
    return result


def _write_record(
    prepared: Prepared,
    result: FinishedRun,
    record_to: RecordOutput,
    places: Places | None,
    tell: Callable[[str], None],
    carried: Carried | None,
) -> None:
    topology, settings = prepared.topology, prepared.settings
    identity = settings.identity(topology)
    contents = read_log(result.run.measurements, identity, tell)
    if carried is not None and contents.source is None:
        tell("note: nothing was measured, so no record is written")
        return
    several = bool(settings.shapes)
    keys = [
        task
        for task in keys_of(settings, prepared.shape)
        if contents.known(task.full_name if several else task.name, STOCK).samples_us
    ]
    candidates = saved_schedules(
        topology, settings, result.run, {key.shape for key in keys}, prepared.own_schedules
    )
    request = backend_request(topology, settings, prepared.record, candidates, places)
    begun = result.run.record()
    described = recorded_run(
        settings,
        request,
        candidates,
        keys,
        contents,
        begun_at="" if begun is None else begun.tuned_at,
        from_the_beginning=carried is None,
    )
    record = record_of(contents, topology, prepared.shape, identity, described)
    record_to.write(record)
    tell(f"record of {len(record.rows)} configurations written to {record_to.path}")
    held_s, measured_s = contents.bill.spent_s, result.report.measuring_s
    if held_s < 0.999 * measured_s:
        tell(
            "note: the record is not all that was measured: "
            f"{result.run.measurements} has lost lines since, "
            f"and holds {held_s:.1f} s of {measured_s:.1f} s"
        )
