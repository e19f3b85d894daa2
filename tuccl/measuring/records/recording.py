"""Conversion of a run's measurement log into a record of all measurements, failures included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lookup_tables.table import Operation, Shape
from probes.topology.graph import Topology
from tuccl.errors import MeasurementError
from tuccl.measuring.records.record import NOT_RECORDED, Record, Request, Row, make_record
from tuccl.measuring.records.recorded_run import RecordedRun
from tuccl.search.trials.config import Task
from tuccl.search.trials.placement import Placement
from tuccl.workspace.measurement_lines import Contents, Recorded


def record_of(
    contents: Contents,
    topology: Topology,
    shape: Shape,
    run: str = "",
    of_run: RecordedRun | None = None,
) -> Record:
    """Return the record of a log's measurements.

    Args:
        contents: Contents of the log.
        topology: The machine that was measured.
        shape: Shape of the communicator of all GPUs.
        run: Identity of the run whose log it is.
        of_run: Its keys, schedules and search; None: unknown.

    Raises:
        MeasurementError: the log holds no measurement.
    """
    source = contents.source
    if source is None:
        raise MeasurementError(
            "the log of this run holds no measurement, so there is nothing to record: run the same "
            "command in another --workspace, which measures again"
        )
    described = RecordedRun() if of_run is None else of_run
    described = replace(described, estimates_us=dict(contents.estimates_us))
    shapes = [named.shape for named in described.shapes]
    by_ranks = {(each.ranks, each.nodes): each for each in (*shapes, shape)}
    # A configuration that a replay did not find was never measured.
    measured = [recorded for recorded in contents.all if recorded.failed != NOT_RECORDED]
    rows = [_row(recorded, shape, by_ranks) for recorded in measured]
    return make_record(topology, shape, source.provenance, source.timing, rows, run, described)


def _row(recorded: Recorded, whole: Shape, by_ranks: Mapping[tuple[int, int], Shape]) -> Row:
    return Row(
        task=_task(recorded.task, whole, by_ranks),
        config=recorded.config,
        samples_us=recorded.samples_us,
        seconds=recorded.seconds,
        failed=recorded.failed,
        failed_check=recorded.failed_check,
        failed_s=recorded.failed_s if recorded.failed else None,
        requests=tuple(
            Request(each.asked, each.given, each.own_s, each.restart_s) for each in recorded.answers
        ),
    )


def _task(name: str, whole: Shape, by_ranks: Mapping[tuple[int, int], Shape]) -> Task:
    """Return the task of a `Task.name` or `Task.full_name`."""
    key, _, place = name.partition("@")
    operation, _, size_bytes = key.rpartition("-")
    shape, placement = whole, Placement()
    if place:
        of_shape, _, of_placement = place.partition("/")
        ranks, _, nodes = of_shape.partition("x")
        shape = by_ranks[int(ranks), int(nodes)]
        placement = Placement.parse(of_placement)
    return Task(Operation(operation), int(size_bytes), shape, placement)
