"""Conversion of a run's measurement log into a record of all measurements, failures included."""

from __future__ import annotations

from tuccl.errors import MeasurementError
from tuccl.lookup_tables.table import Operation, Shape
from tuccl.probes.topology.graph import Topology
from tuccl.records.record import NOT_RECORDED, Record, Row, make_record
from tuccl.workspace.measurement_lines import Contents, Recorded


def record_of(contents: Contents, topology: Topology, shape: Shape, run: str = "") -> Record:
    """Return the record of a log's measurements.

    Args:
        contents: Contents of the log.
        topology: The machine that was measured.
        shape: Shape of the communicator.
        run: Identity of the run whose log it is.

    Raises:
        MeasurementError: the log holds no measurement.
    """
    source = contents.source
    if source is None:
        raise MeasurementError(
            "the log of this run holds no measurement, so there is nothing to record: run the same "
            "command in another --workspace, which measures again"
        )
    # A configuration that a replay did not find was never measured.
    measured = [recorded for recorded in contents.all if recorded.failed != NOT_RECORDED]
    rows = [_row(recorded) for recorded in measured]
    return make_record(topology, shape, source.provenance, source.timing, rows, run)


def _row(recorded: Recorded) -> Row:
    operation, _, size_bytes = recorded.task.rpartition("-")
    return Row(
        operation=Operation(operation),
        size_bytes=int(size_bytes),
        config=recorded.config,
        samples_us=recorded.samples_us,
        seconds=recorded.seconds,
        failed=recorded.failed,
    )
