"""The Parquet form of a table: one row per entry, flat columns.

`pandas.read_parquet` shows the entries as they are; the data of the whole table (profile,
schedules, topology, format version) is stored in the schema metadata under keys that start with
`tuccl.`.

A schedule is stored twice: as a program in base64, which a bundle copies byte for byte, and as
MSCCL XML for users and other runtimes. Both are needed: a schedule for more ranks than an executor
serves has no program, and a program has no names and sizes.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import asdict, astuple, fields
from typing import Any

from lookup_tables.collective import Collective
from lookup_tables.confirmation import Confirmation, Estimator, JobGain, NoStarts, Reference
from lookup_tables.lookup import check_table
from lookup_tables.parquet_form import ParquetForm, parquet_bytes, read_parquet
from lookup_tables.provenance import Provenance, provenance_from_json, provenance_to_json
from lookup_tables.table import (
    BuiltinConfig,
    Entry,
    EstimateLine,
    Key,
    NcclAlgorithm,
    NcclProtocol,
    RunnersUp,
    ScheduleConfig,
    SeenPlacement,
    Setting,
    Shape,
    StoredSchedule,
    SumOrder,
    Table,
    TimedSiblings,
)
from tuccl.errors import TableError

FORMAT_VERSION = 9

_COLUMNS: tuple[tuple[str, str, bool], ...] = (
    ("operation", "string", False),
    ("min_bytes", "int64", False),
    ("max_bytes", "int64", False),
    ("ranks", "int64", False),
    ("nodes", "int64", False),
    ("ranks_per_node", "int64", False),
    ("fingerprint", "string", False),
    ("tuned_bytes", "int64", False),
    ("builtin_algorithm", "string", True),
    ("builtin_protocol", "string", True),
    ("builtin_nchannels", "int64", True),
    ("builtin_chunk_bytes", "int64", True),
    ("schedule", "string", True),
    ("schedule_protocol", "string", True),
    ("schedule_nchannels", "int64", True),
    ("schedule_nthreads", "int64", True),
    ("schedule_buffer_bytes", "int64", True),
    ("schedule_in_windows", "bool", True),
    ("time_us", "float64", False),
    ("builtin_time_us", "float64", True),
    ("default_time_us", "float64", False),
    ("samples", "int64", False),
    ("spread", "float64", False),
    ("tuned_at", "string", False),
    ("backend", "string", True),
    ("nccl_version", "string", True),
    ("tuccl_version", "string", True),
    ("machine", "string", True),
    ("replayed", "bool", True),
    ("details", "string", True),
    ("reference", "string", True),
    ("estimator", "string", True),
    ("ratio", "float64", True),
    ("ratio_low", "float64", True),
    ("ratio_high", "float64", True),
    ("confidence", "float64", True),
    ("starts", "int64", True),
    ("no_starts", "string", True),
    ("job_stock_us", "float64", True),
    ("job_table_us", "float64", True),
    ("job_ratio_low", "float64", True),
    ("job_ratio_high", "float64", True),
    ("job_rounds", "int64", True),
    ("placement", "int64", True),
)
"""Columns: name, Arrow type and whether null is allowed."""
_OF_KEYS = ("operation", "min_bytes", "max_bytes", "fingerprint")
_OF_ENTRIES = (
    "tuned_bytes", "time_us", "builtin_time_us", "default_time_us", "samples", "spread", "tuned_at",
)  # fmt: skip
"""Columns that have the names of their members of `Key` and `Entry`."""
_BUILTIN = (
    "builtin_algorithm", "builtin_protocol", "builtin_nchannels", "builtin_chunk_bytes",
)  # fmt: skip
_SCHEDULE = (
    "schedule", "schedule_protocol", "schedule_nchannels", "schedule_nthreads",
    "schedule_buffer_bytes", "schedule_in_windows",
)  # fmt: skip
_CONFIRMATION = ("reference", "estimator", "ratio", "ratio_low", "ratio_high", "confidence")
_JOB_GAIN = ("job_stock_us", "job_table_us", "job_ratio_low", "job_ratio_high", "job_rounds")
"""Columns of the members of `BuiltinConfig`, `ScheduleConfig`, `Confirmation` and `JobGain`, in
their order; `starts` of `Confirmation` has two columns."""
_FORM = ParquetForm(
    what="table",
    version_key="format_version",
    version_called="table format",
    version=FORMAT_VERSION,
    columns=_COLUMNS,
    compression="snappy",
    missing="no TuCCL table; tune to make one",
    again="tune again",
    error=TableError,
)


def table_to_parquet_bytes(table: Table) -> bytes:
    """Return a table as a Parquet file; the same table and pyarrow release give the same bytes.

    Raises:
        TableError: The table breaks a rule of `check_table`.
    """
    check_table(table)
    rows = [_row(entry) for entry in table.entries]
    for own in table.placements:
        rows += [{**_row(entry), "placement": own.number} for entry in own.entries]
    metadata = _metadata(table) | {"placements": [_placement_json(own) for own in table.placements]}
    return parquet_bytes(_FORM, metadata, rows)


def table_from_parquet_bytes(data: bytes, source: str) -> Table:
    """Return the table of a Parquet file.

    Args:
        data: The whole file.
        source: Its name, for messages.

    Raises:
        TableError: Not Parquet, damaged, of an unknown version, or with other columns.
    """
    metadata, rows = read_parquet(_FORM, data, source)
    try:
        table = Table(
            topology_name=_text(metadata["topology_name"]),
            fingerprint=_text(metadata["fingerprint"]),
            gpu_models=tuple(map(_text, metadata["gpu_models"])),
            entries=tuple(_entry(row) for row in rows if row["placement"] is None),
            profile={name: _text(value) for name, value in dict(metadata["profile"]).items()},
            schedules=_schedules(metadata),
            placements=_placements(metadata, rows),
            sums=tuple(
                SumOrder(Shape(*shape), Collective.named(name), _text(order))
                for shape, name, order in metadata["sums"]
            ),
            settings=tuple(
                Setting(Shape(*shape), _text(name)) for shape, name in metadata["settings"]
            ),
            runners_up=_runners_up(metadata),
        )
        check_table(table)
    except (TableError, KeyError, TypeError, ValueError) as error:
        raise _FORM.invalid(source, error) from error
    return table


def _placement_json(own: SeenPlacement) -> dict[str, Any]:
    timed = own.timed
    return {
        "shape": list(astuple(own.shape)),
        "number": own.number,
        "example": own.example,
        "lines": [
            [operation.value, line.latency_us, line.us_per_byte] for operation, line in own.lines
        ],
        "timed": None
        if timed is None
        else {
            "machine": list(astuple(timed.machine)),
            "stride": timed.stride,
            "siblings": list(timed.siblings),
        },
    }


def _timed(values: dict[str, Any] | None) -> TimedSiblings | None:
    if values is None:
        return None
    siblings = tuple(map(int, values["siblings"]))
    return TimedSiblings(Shape(*values["machine"]), int(values["stride"]), siblings)


def _placements(
    metadata: dict[str, Any], rows: Sequence[dict[str, Any]]
) -> tuple[SeenPlacement, ...]:
    """Return the communicators with entries of their own.

    Raises:
        KeyError, TypeError, ValueError: They contradict themselves.
    """
    entries: dict[tuple[Shape, int], list[Entry]] = {}
    for row in rows:
        if row["placement"] is not None:
            entry = _entry(row)
            entries.setdefault((entry.key.shape, row["placement"]), []).append(entry)
    found = []
    for values in metadata["placements"]:
        shape, number = Shape(*values["shape"]), int(values["number"])
        lines = tuple(
            (Collective.named(name), EstimateLine(float(latency_us), float(us_per_byte)))
            for name, latency_us, us_per_byte in values["lines"]
        )
        own = tuple(entries.pop((shape, number), ()))
        timed = _timed(values["timed"])
        found.append(SeenPlacement(shape, number, str(values["example"]), lines, own, timed))
    if entries:
        raise ValueError("an entry is of a placement that the table lacks")
    return tuple(found)


def _metadata(table: Table) -> dict[str, Any]:
    return {
        "topology_name": table.topology_name,
        "fingerprint": table.fingerprint,
        "gpu_models": list(table.gpu_models),
        "profile": dict(table.profile),
        "schedules": [
            [s.content_hash, s.name, s.msccl_xml, base64.b64encode(s.program).decode()]
            for s in table.schedules
        ],
        "sums": [[list(astuple(s.shape)), s.operation.value, s.order] for s in table.sums],
        "settings": [[list(astuple(own.shape)), own.name] for own in table.settings],
        "runners_up": [
            [
                *(list(astuple(own.key.shape)), own.key.operation.value),
                *(own.key.min_bytes, own.key.max_bytes),
                [list(astuple(setting)) for setting in own.settings],
                [list(astuple(schedule)) for schedule in own.schedules],
            ]
            for own in table.runners_up
        ],
    }


def _runners_up(metadata: dict[str, Any]) -> tuple[RunnersUp, ...]:
    return tuple(
        RunnersUp(
            Key(Collective.named(name), least, most, Shape(*shape), metadata["fingerprint"]),
            tuple(
                BuiltinConfig(NcclAlgorithm(algorithm), NcclProtocol(protocol), nchannels, chunk)
                for algorithm, protocol, nchannels, chunk in settings
            ),
            tuple(
                ScheduleConfig(_text(schedule), NcclProtocol(protocol), *figures)
                for schedule, protocol, *figures in schedules
            ),
        )
        for shape, name, least, most, settings, schedules in metadata["runners_up"]
    )


def _schedules(metadata: dict[str, Any]) -> tuple[StoredSchedule, ...]:
    return tuple(
        StoredSchedule(
            _text(content_hash),
            _text(name),
            _text(xml),
            base64.b64decode(program, validate=True),
        )
        for content_hash, name, xml, program in metadata["schedules"]
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a text")
    return value


def _row(entry: Entry) -> dict[str, Any]:
    """Return an entry's values by column; those that it lacks are left out."""
    row = asdict(entry.key.shape)
    row |= {name: getattr(entry.key, name) for name in _OF_KEYS}
    row |= {name: getattr(entry, name) for name in _OF_ENTRIES}
    if entry.provenance is not None:
        row |= provenance_to_json(entry.provenance)
    parts = ((entry.builtin, _BUILTIN), (entry.schedule, _SCHEDULE), (entry.in_job, _JOB_GAIN))
    for part, columns in parts:
        if part is not None:
            row |= dict(zip(columns, astuple(part), strict=True))
    if entry.confirmation is not None:
        *shown, starts = astuple(entry.confirmation)
        row |= dict(zip(_CONFIRMATION, shown, strict=True))
        row["no_starts" if isinstance(starts, NoStarts) else "starts"] = starts
    return row


def _entry(row: dict[str, Any]) -> Entry:
    shape = Shape(*(row[field.name] for field in fields(Shape)))
    operation, min_bytes, max_bytes, fingerprint = (row[name] for name in _OF_KEYS)
    builtin = schedule = provenance = in_job = None
    if row["builtin_algorithm"] is not None:
        algorithm, protocol, *numbers = (row[name] for name in _BUILTIN)
        builtin = BuiltinConfig(NcclAlgorithm(algorithm), NcclProtocol(protocol), *numbers)
    if row["schedule"] is not None:
        content_hash, protocol, *figures = (row[name] for name in _SCHEDULE)
        schedule = ScheduleConfig(content_hash, NcclProtocol(protocol), *figures)
    if row["backend"] is not None:
        provenance = provenance_from_json(
            {each.name: row[each.name] for each in fields(Provenance)}
        )
    if row["job_stock_us"] is not None:
        in_job = JobGain(*(row[name] for name in _JOB_GAIN))
    return Entry(
        key=Key(Collective.named(operation), min_bytes, max_bytes, shape, fingerprint),
        builtin=builtin,
        schedule=schedule,
        provenance=provenance,
        confirmation=_confirmation(row),
        in_job=in_job,
        **{name: row[name] for name in _OF_ENTRIES},
    )


def _confirmation(row: dict[str, Any]) -> Confirmation | None:
    if row["reference"] is None:
        return None
    starts, no_starts = row["starts"], row["no_starts"]
    if (starts is None) == (no_starts is None):
        raise ValueError("an entry needs either its starts or why there were none")
    reference, estimator, ratio, low, high, confidence = (row[name] for name in _CONFIRMATION)
    known = NoStarts(no_starts) if starts is None else starts
    return Confirmation(
        Reference(reference), Estimator(estimator), ratio, low, high, confidence, known
    )
