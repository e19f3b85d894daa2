"""`run`: carries a prepared run from its first stage to its table, and writes its record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tuccl.crew.places import Places
from tuccl.measuring.records.record import NOT_RECORDED, Record, record_of
from tuccl.quantities import count_of
from tuccl.reports.tuning_result import TuningResult
from tuccl.search.trials.config import STOCK
from tuccl.search.trials.events import Listener
from tuccl.search.trials.shapes import shape_text
from tuccl.tuning.pipeline.carried_table import Carried
from tuccl.tuning.pipeline.preparing import Prepared
from tuccl.tuning.pipeline.record_output import RecordOutput
from tuccl.tuning.pipeline.recorded_search import recorded_run
from tuccl.tuning.pipeline.shape_schedules import saved_schedules
from tuccl.tuning.pipeline.stages import initialize
from tuccl.tuning.run_keys import keys_of
from tuccl.tuning.settings import describe_keys
from tuccl.workspace.measurement_lines import Contents
from tuccl.workspace.measurement_log import read_log
from tuccl.workspace.runs import Workspace


def run(
    prepared: Prepared,
    workspace: Workspace,
    listener: Listener,
    record_to: RecordOutput | None = None,
    places: Places | None = None,
    carried: Carried | None = None,
) -> TuningResult:
    """Tune, or continue; then write the record if its file is given.

    Args:
        prepared: The run.
        workspace: Directory for the results.
        listener: Receives progress, events and lines.
        record_to: File of the record; None: no record.
        places: Hosts and devices of the workers, the ranks of an MPI job; None: this host.
        carried: The run before a change, whose table some keys may be kept from; None: none is.

    Raises:
        UsageError: The record's file is an input, or is the record of another run.
        WorkspaceError: The workspace or the record cannot be written.
        MeasurementError: The backend cannot go on.
    """
    settings = prepared.settings
    if record_to is not None:
        record_to.check_run(prepared.identity)
    listener.say(
        f"{prepared.topology.name}: {prepared.shape.ranks} GPUs on {prepared.shape.nodes} node(s); "
        f"{describe_keys(settings)}"
        + "".join(f"; {named.name}: {shape_text(named.shape)}" for named in settings.shapes)
    )
    listener.note(prepared.notes)
    with listener.progress() as progress:
        result = initialize(prepared, workspace, progress, listener.say, places, carried)
    if prepared.record is not None:
        contents = read_log(result.run.measurements, prepared.identity)
        if missing := sum(found.failed == NOT_RECORDED for found in contents.all):
            listener.note(
                [f"{NOT_RECORDED}: {count_of(missing, 'configuration')} that the search tried"]
            )
    if record_to is not None:
        contents = read_log(result.run.measurements, prepared.identity, listener.say)
        if carried is not None and contents.source is None:
            listener.note(["nothing was measured, so no record is written"])
        else:
            record = _record(prepared, result, contents, places, is_whole=carried is None)
            record_to.write(record)
            listener.say(f"record of {len(record.rows)} configurations written to {record_to.path}")
            listener.note(_lost(result, contents))
    return result


def _record(
    prepared: Prepared,
    result: TuningResult,
    contents: Contents,
    places: Places | None,
    *,
    is_whole: bool,
) -> Record:
    """Return the record of a run.

    Args:
        prepared: The run.
        result: Its result.
        contents: Contents of its log.
        places: Places of its workers.
        is_whole: Whether its search began without an earlier table.
    """
    topology = prepared.topology
    settings = replace(prepared.settings, added=result.report.added)
    keys = [
        task for task in keys_of(settings, prepared.shape) if contents.known(task, STOCK).samples_us
    ]
    candidates = saved_schedules(
        topology, settings, result.run, {key.shape for key in keys}, prepared.own_schedules
    )
    begun = result.run.record()
    described = recorded_run(
        settings,
        prepared.request(candidates, places),
        candidates,
        keys,
        contents,
        begun_at="" if begun is None else begun.tuned_at,
        from_the_beginning=is_whole,
    )
    return record_of(contents, topology, prepared.shape, prepared.identity, described)


def _lost(result: TuningResult, contents: Contents) -> Iterator[str]:
    """Yield a note if the log has lost measurements."""
    held_s, measured_s = contents.bill.spent_s, result.report.measuring_s
    if held_s < 0.999 * measured_s:
        yield (
            f"the record is not all that was measured: {result.run.measurements} has lost lines "
            f"since, and holds {held_s:.1f} s of {measured_s:.1f} s"
        )
