"""The Parquet form of a record: one row per configuration on a task, flat columns.

`pandas.read_parquet` shows the rows as they are. The data of the whole record (topology, shape,
versions, timing, the recorded run) is stored as JSON in the schema metadata under keys that start
with `tuccl.`; `tuccl.record_version` marks a record and names the version of its form. The topology
and the schedules are complete, so that a record can be replayed without any other file.
docs/reference/records.md describes the columns.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from lookup_tables.collective import Collective
from lookup_tables.parquet_form import (
    ParquetForm,
    parquet_bytes,
    read_parquet,
    read_parquet_metadata,
)
from lookup_tables.provenance import provenance_from_json, provenance_to_json
from lookup_tables.table import Shape
from probes.inputs.regular_file import read_regular_file
from probes.topology.json_form import topology_from_json, topology_to_json
from probes.topology.validation import check_structure
from tuccl.errors import InputFileError, MachineError
from tuccl.measuring.records.record import Record, make_record
from tuccl.measuring.records.run_json import run_from_json, run_to_json
from tuccl.search.trials.config import Config, Task
from tuccl.search.trials.placement import Placement
from tuccl.search.trials.timing import timing_from_json
from tuccl.workspace.atomic_file import write_atomically
from tuccl.workspace.measurement_lines import Answer, Recorded

RECORD_VERSION = 8

_COLUMNS: tuple[tuple[str, str, bool], ...] = (
    ("ranks", "int64", False),
    ("nodes", "int64", False),
    ("ranks_per_node", "int64", False),
    ("placement", "string", True),
    ("operation", "string", False),
    ("size_bytes", "int64", False),
    ("algorithm", "string", False),
    ("protocol", "string", False),
    ("nchannels", "int64", False),
    ("nthreads", "int64", False),
    ("buffer_bytes", "int64", False),
    ("min_nchannels", "int64", False),
    ("chunk_bytes", "int64", False),
    ("samples_us", "list", False),
    ("seconds", "float64", False),
    ("failed", "string", True),
    ("failed_check", "bool", False),
    ("failed_s", "float64", True),
    ("asked", "counts", False),
    ("given", "counts", False),
    ("asked_s", "list", False),
    ("restart_s", "list", False),
)
"""Columns: name, Arrow type (`list` is of float64, `counts` of
int64) and whether null is allowed."""
_SETTINGS = ("settings", "string", True)
"""Column of further process variables, present only where a row has some."""
_FORM = ParquetForm(
    what="record",
    version_key="record_version",
    version_called="record version",
    version=RECORD_VERSION,
    columns=_COLUMNS,
    optional_columns=(_SETTINGS,),
    compression="zstd",
    missing="no record of measurements; make one with `tuccl tune --record FILE`",
    again="record again",
    error=InputFileError,
)


def write_record(path: Path, record: Record) -> None:
    """Write a record; on failure the file is unchanged.

    Raises:
        WorkspaceError: the file cannot be written.
    """
    write_atomically(path, record_to_parquet_bytes(record))


def read_record(path: Path) -> Record:
    """Return the record of a Parquet file.

    Raises:
        InputFileError: it cannot be read, or is no record of this version.
    """
    return record_from_parquet_bytes(_data(path), str(path))


def run_of_record(path: Path) -> str:
    """Return the identity of a record's run; empty if unknown.

    Raises:
        InputFileError: it cannot be read, or is no record of this version; rows are not checked.
    """
    return str(read_parquet_metadata(_FORM, _data(path), str(path)).get("run", ""))


def _data(path: Path) -> bytes:
    try:
        return read_regular_file(path)
    except OSError as error:
        raise InputFileError(
            f"cannot read {path}: {error.strerror}; name a record that `--record` wrote"
        ) from error


def record_to_parquet_bytes(record: Record) -> bytes:
    """Return a record as a Parquet file; equal records and pyarrow releases give equal bytes."""
    return parquet_bytes(_FORM, _metadata(record), [_values(row) for row in record.rows])


def record_from_parquet_bytes(data: bytes, source: str) -> Record:
    """Return the record of a Parquet file.

    Args:
        data: The whole file.
        source: Its name, for messages.

    Raises:
        InputFileError: Not Parquet, no record, damaged, of another version, with other columns, or
            with rows that cannot have been measured.
    """
    metadata, rows = read_parquet(_FORM, data, source)
    try:
        topology = topology_from_json(metadata["topology"], source)
        check_structure(topology)
        record = make_record(
            topology,
            _shape(metadata["shape"]),
            provenance_from_json(metadata["provenance"]),
            timing_from_json(metadata["timing"]),
            [_row(values) for values in rows],
            str(metadata.get("run", "")),
            run_from_json(metadata["of_run"]),
        )
    except (
        MachineError,
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise _FORM.invalid(source, error) from error
    if metadata.get("fingerprint") != record.fingerprint:
        raise InputFileError(
            f"{source}: its topology has fingerprint {record.fingerprint}, but it was recorded as "
            f"{metadata.get('fingerprint')}; restore it or record again"
        )
    return record


def _metadata(record: Record) -> dict[str, Any]:
    run = {"run": record.run} if record.run else {}
    return {
        **run,
        "topology_name": record.topology.name,
        "fingerprint": record.fingerprint,
        "topology": topology_to_json(record.topology),
        "shape": asdict(record.shape),
        "provenance": provenance_to_json(record.provenance),
        "timing": asdict(record.timing),
        "of_run": run_to_json(record.of_run),
    }


def _shape(values: dict[str, Any]) -> Shape:
    shape = Shape(**values)
    if shape.fault:
        raise ValueError(shape.fault)
    return shape


def _values(row: Recorded) -> dict[str, Any]:
    return {
        **asdict(row.task.shape),
        "placement": row.task.placement.text or None,
        "operation": row.task.operation.value,
        "size_bytes": row.task.size_bytes,
        **asdict(row.config),
        "settings": " ".join(f"{name}={value}" for name, value in row.config.settings) or None,
        "samples_us": list(row.samples_us),
        "seconds": row.seconds,
        "failed": row.failed or None,
        "failed_check": row.failed_check,
        "failed_s": row.failed_s if row.failed and row.unasked_s is None else None,
        "asked": [each.asked for each in row.answers],
        "given": [each.given for each in row.answers],
        "asked_s": [each.seconds for each in row.answers],
        "restart_s": [each.restart_s for each in row.answers],
    }


def _row(values: dict[str, Any]) -> Recorded:
    shape = Shape(values["ranks"], values["nodes"], values["ranks_per_node"])
    placement = Placement.parse(values["placement"] or "")
    columns = [values[name] for name in ("asked", "given", "asked_s", "restart_s")]
    failed_s = values["failed_s"]
    pairs = (pair.partition("=") for pair in (values.get("settings") or "").split())
    config = Config(
        algorithm=values["algorithm"],
        protocol=values["protocol"],
        nchannels=values["nchannels"],
        nthreads=values["nthreads"],
        buffer_bytes=values["buffer_bytes"],
        min_nchannels=values["min_nchannels"],
        settings=tuple(sorted((name, value) for name, _, value in pairs)),
        chunk_bytes=values["chunk_bytes"],
    )
    return Recorded(
        task=Task(Collective.named(values["operation"]), values["size_bytes"], shape, placement),
        config=config,
        samples_us=tuple(values["samples_us"]),
        answers=tuple(Answer(*each) for each in zip(*columns, strict=True)),
        failed=values["failed"] or "",
        failed_s=failed_s or 0.0,
        failed_check=values["failed_check"],
        unasked_s=values["seconds"] if failed_s is None and not values["asked"] else None,
    )
