"""The Parquet form of a record: one row per configuration, flat columns.

`pandas.read_parquet` shows the rows as they are. What belongs to the whole record (topology, shape,
versions, how calls were timed) travels as JSON in the schema metadata under keys that start with
`tuccl.`; `tuccl.record_version` says that it is a record, and which form it has. The topology is
whole, so that a record can be replayed without any other file. docs/records.md has the columns.
pyarrow is imported when first needed, because it costs more than everything else here.
"""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookup_tables.table import Operation, Shape
from probes.errors import TopologyFileError
from probes.topology_json import topology_from_json, topology_to_json
from tuccl.atomic_file import write_atomically
from tuccl.backends.timing import timing_from_json
from tuccl.records.errors import RecordFileError
from tuccl.records.record import Record, Row, make_record
from tuccl.search.config import Config

if TYPE_CHECKING:
    import pyarrow as pa

RECORD_VERSION = 1

_COLUMNS: tuple[tuple[str, str, bool], ...] = (
    ("operation", "string", False),
    ("size_bytes", "int64", False),
    ("algorithm", "string", False),
    ("protocol", "string", False),
    ("nchannels", "int64", False),
    ("nthreads", "int64", False),
    ("buffer_bytes", "int64", False),
    ("min_nchannels", "int64", False),
    ("samples_us", "list", False),
    ("seconds", "float64", False),
    ("failed", "string", True),
)
"""Name, Arrow type (`list` is of float64) and whether it may be null."""
_SETTINGS = ("settings", "string", True)
"""Further variables of the process: a column only where a row has some."""
_REMEDY = "restore it or record again"


def write_record(path: Path, record: Record) -> None:
    """Write a record, or leave the file as it was.

    Raises:
        WorkspaceError: the file cannot be written.
    """
    write_atomically(path, record_to_parquet_bytes(record))


def read_record(path: Path) -> Record:
    """The record of a Parquet file.

    Raises:
        RecordFileError: it cannot be read, or is no record of this version.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordFileError(
            f"cannot read {path}: {error.strerror}; name a record that `--record` wrote"
        ) from error
    return record_from_parquet_bytes(data, str(path))


def record_to_parquet_bytes(record: Record) -> bytes:
    """A record as a Parquet file; the same record and pyarrow release give the same bytes."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    columns = _COLUMNS
    if any(row.config.settings for row in record.rows):
        columns = (*_COLUMNS, _SETTINGS)
    schema = _schema(columns).with_metadata(_metadata(record))
    buffer = io.BytesIO()
    table = pa.Table.from_pylist([_values(row) for row in record.rows], schema=schema)
    pq.write_table(table, buffer, compression="zstd", write_page_checksum=True)
    return buffer.getvalue()


def record_from_parquet_bytes(data: bytes, source: str) -> Record:
    """The record of a Parquet file.

    Args:
        data: The whole file.
        source: Its name, for messages.

    Raises:
        RecordFileError: Not Parquet, no record, damaged, of another version, with other columns, or
            with rows that cannot have been measured.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        # Without Arrow's threads: a short command that ends while they start is aborted.
        file = pq.ParquetFile(
            pa.BufferReader(data), page_checksum_verification=True, pre_buffer=False
        )
        metadata = _read_metadata(file.schema_arrow.metadata or {}, source)
        _check_columns(file.schema_arrow, source)
        arrow = file.read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise RecordFileError(
            f"{source}: not a readable Parquet file ({_first_line(error)}); {_REMEDY}"
        ) from error
    try:
        topology = topology_from_json(metadata["topology"], source)
        record = make_record(
            topology,
            Shape(**metadata["shape"]),
            str(metadata["backend"]),
            str(metadata["versions"]),
            str(metadata["tuccl"]),
            timing_from_json(metadata["timing"]),
            [_row(values) for values in arrow.to_pylist()],
        )
    except (TopologyFileError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise RecordFileError(
            f"{source}: holds no valid record ({_first_line(error)}); {_REMEDY}"
        ) from error
    if metadata.get("fingerprint") != record.fingerprint:
        raise RecordFileError(
            f"{source}: its topology has fingerprint {record.fingerprint}, but it was recorded as "
            f"{metadata.get('fingerprint')}; {_REMEDY}"
        )
    return record


def _schema(columns: tuple[tuple[str, str, bool], ...]) -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415

    kinds = {
        "string": pa.string(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "list": pa.list_(pa.field("element", pa.float64(), nullable=False)),
    }
    return pa.schema([pa.field(name, kinds[kind], nullable=null) for name, kind, null in columns])


def _metadata(record: Record) -> dict[str, str]:
    values = {
        "record_version": RECORD_VERSION,
        "topology_name": record.topology.name,
        "fingerprint": record.fingerprint,
        "topology": topology_to_json(record.topology),
        "shape": asdict(record.shape),
        "backend": record.backend,
        "versions": record.versions,
        "tuccl": record.tuccl,
        "timing": asdict(record.timing),
    }
    return {f"tuccl.{name}": json.dumps(value, sort_keys=True) for name, value in values.items()}


def _read_metadata(raw: dict[bytes, bytes], source: str) -> dict[str, Any]:
    try:
        metadata = {
            name.decode().removeprefix("tuccl."): json.loads(value)
            for name, value in raw.items()
            if name.startswith(b"tuccl.")
        }
    except (ValueError, RecursionError) as error:
        raise RecordFileError(
            f"{source}: its metadata is damaged ({_first_line(error)}); {_REMEDY}"
        ) from error
    version = metadata.get("record_version")
    if version is None:
        raise RecordFileError(
            f"{source}: a Parquet file, but no record of measurements; make one with "
            "`tuccl tune --record FILE`"
        )
    if version != RECORD_VERSION:
        raise RecordFileError(
            f"{source}: record version {version}, this release reads {RECORD_VERSION}; record "
            "again or use the release that wrote it"
        )
    return metadata


def _check_columns(schema: pa.Schema, source: str) -> None:
    for field in _schema((*_COLUMNS, _SETTINGS)):
        if field.name == _SETTINGS[0] and field.name not in schema.names:
            continue
        if field.name not in schema.names:
            raise RecordFileError(f"{source}: column {field.name} is missing; {_REMEDY}")
        found = schema.field(field.name).type
        if found != field.type:
            raise RecordFileError(
                f"{source}: column {field.name} is {found} instead of {field.type}; {_REMEDY}"
            )


def _values(row: Row) -> dict[str, Any]:
    return {
        "operation": row.operation.value,
        "size_bytes": row.size_bytes,
        **asdict(row.config),
        "settings": " ".join(f"{name}={value}" for name, value in row.config.settings) or None,
        "samples_us": list(row.samples_us),
        "seconds": row.seconds,
        "failed": row.failed or None,
    }


def _row(values: dict[str, Any]) -> Row:
    for name, _, may_be_null in _COLUMNS:
        if values.get(name) is None and not may_be_null:
            raise ValueError(f"column {name} is empty in a row")
    pairs = (pair.rpartition("=") for pair in (values.get("settings") or "").split())
    config = Config(
        algorithm=values["algorithm"],
        protocol=values["protocol"],
        nchannels=values["nchannels"],
        nthreads=values["nthreads"],
        buffer_bytes=values["buffer_bytes"],
        min_nchannels=values["min_nchannels"],
        settings=tuple(sorted((name, int(value)) for name, _, value in pairs)),
    )
    return Row(
        operation=Operation(values["operation"]),
        size_bytes=values["size_bytes"],
        config=config,
        samples_us=tuple(values["samples_us"]),
        seconds=values["seconds"],
        failed=values["failed"] or "",
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
