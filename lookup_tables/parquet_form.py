"""The common Parquet form of tables and records: flat rows, with a description in the metadata.

Data of a whole file is stored as JSON in the schema metadata under keys that start with `tuccl.`,
including the version of its form. A file of another version or with other columns is refused before
its rows are read. pyarrow is imported when first needed, because the import is slow;
`require_pyarrow` checks before long work that it is usable.
"""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuccl.errors import HostError, TableError

if TYPE_CHECKING:
    import pyarrow as pa


MOST_ROWS = 400_000
"""Rows that are read; a grid of four H200 has 18,000, a row takes about 1 KB as Python objects."""
MOST_BYTES = 256 << 20
"""Bytes of all columns that are read, without compression."""
_BATCH_ROWS = 1000


@dataclass(frozen=True, slots=True)
class ParquetForm:
    """The common properties of one kind of files."""

    what: str
    """Noun for the content in messages: `table`."""
    version_key: str
    version_called: str
    version: int
    """Version that TuCCL writes."""
    columns: tuple[tuple[str, str, bool], ...]
    """Columns: name, Arrow type (`list` is of float64) and whether null is allowed."""
    compression: str
    missing: str
    """Message for a Parquet file without a version: how to obtain a file of this form."""
    again: str
    """Command in messages that recreates the content: `tune again`."""
    error: type[Exception]
    optional_columns: tuple[tuple[str, str, bool], ...] = ()
    """Columns that a file has only where a row has a value."""

    def invalid(self, source: str, reason: Exception) -> Exception:
        """Return the error for invalid rows or metadata."""
        return self.error(
            f"{source}: holds no valid {self.what} ({first_line(reason)}); "
            f"restore it or {self.again}"
        )


def parquet_bytes(
    form: ParquetForm, metadata: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> bytes:
    """Return a Parquet file; the same values and pyarrow release give the same bytes.

    Args:
        form: Form of the file.
        metadata: Values by name, without prefix and version.
        rows: Values by column; a missing column is null.

    Raises:
        HostError: pyarrow cannot be imported.
    """
    pa, pq = _pyarrow()
    texts = {
        f"tuccl.{name}": json.dumps(value, sort_keys=True)
        for name, value in {form.version_key: form.version, **metadata}.items()
    }
    columns = form.columns + tuple(
        column
        for column in form.optional_columns
        if any(row.get(column[0]) is not None for row in rows)
    )
    table = pa.Table.from_pylist(list(rows), schema=_schema(columns).with_metadata(texts))
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression=form.compression, write_page_checksum=True)
    return buffer.getvalue()


def read_parquet(
    form: ParquetForm, data: bytes, source: str
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return metadata by name without prefix, and the rows, complete but for optional columns.

    Args:
        form: Form of the file.
        data: The whole file.
        source: Its name, for messages.

    Raises:
        form.error: Not Parquet, damaged, of another version, with other columns, or null where
            null is not allowed.
        HostError: pyarrow cannot be imported.
    """
    with _readable(form, source):
        file = _opened(data)
        metadata = _read_metadata(form, file.schema_arrow.metadata or {}, source)
        _check_columns(form, file.schema_arrow, source)
        rows = _rows(form, file, source)
    for name, _, may_be_null in form.columns:
        if rows.column(name).null_count and not may_be_null:
            raise form.invalid(source, ValueError(f"column {name} is empty in a row"))
    return metadata, rows.to_pylist()


def read_parquet_metadata(form: ParquetForm, data: bytes, source: str) -> dict[str, Any]:
    """Return the metadata by name without prefix; columns and rows are not checked.

    Raises:
        form.error: Not Parquet, damaged, or of another version.
        HostError: pyarrow cannot be imported.
    """
    with _readable(form, source):
        return _read_metadata(form, _opened(data).schema_arrow.metadata or {}, source)


def require_pyarrow() -> None:
    """Write and read a row in memory, to check before a long run that results can be written.

    Raises:
        HostError: pyarrow cannot be imported, lacks Parquet, or lacks a compression in use.
    """
    rows = [{"number": 1, "text": "a", "truth": True, "figures": [0.5], "counts": [1]}]
    try:
        for form in _TRIALS:
            if read_parquet(form, parquet_bytes(form, {}, rows), form.what)[1] != rows:
                raise ValueError("it read another row than it had written")
    except HostError:
        raise
    except Exception as error:  # pyarrow may fail with any exception.
        raise _unusable(error) from error


_TRIALS = tuple(
    ParquetForm(
        what=f"trial of {compression}",
        version_key="trial_version",
        version_called="trial",
        version=1,
        columns=(
            ("number", "int64", False),
            ("text", "string", True),
            ("truth", "bool", True),
            ("figures", "list", False),
            ("counts", "counts", False),
        ),
        compression=compression,
        missing="",
        again="",
        error=TableError,
    )
    for compression in ("snappy", "zstd")
)
"""Forms with every type and every compression in use."""


def _pyarrow() -> tuple[Any, Any]:
    """Return `pyarrow` and `pyarrow.parquet`."""
    try:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415
    except Exception as error:  # A broken installation may raise any exception.
        raise _unusable(error) from error
    return pa, pq


def _unusable(error: Exception) -> HostError:
    return HostError(
        f"pyarrow, which tables are written with, cannot be used ({type(error).__name__}: "
        f"{first_line(error)}); mend it with `{shlex.quote(sys.executable)} -m pip install "
        "--force-reinstall pyarrow`"
    )


def _opened(data: bytes) -> Any:
    """Open a file without Arrow's threads.

    A short command that ends while these threads start is aborted ("terminate
    called without an active exception") in one run of twenty.
    """
    pa, pq = _pyarrow()
    return pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True, pre_buffer=False)


@contextmanager
def _readable(form: ParquetForm, source: str) -> Iterator[None]:
    """Convert Arrow's exceptions into the form's error."""
    pa, _ = _pyarrow()
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise form.error(
            f"{source}: not a readable Parquet file ({first_line(error)}); "
            f"restore it or {form.again}"
        ) from error


def _rows(form: ParquetForm, file: Any, source: str) -> Any:
    """Read the rows as an Arrow table; a small file may hold millions that are alike.

    Raises:
        form.error: It has more rows or bytes than TuCCL reads.
    """
    pa, _ = _pyarrow()
    batches, count, size_bytes = [], 0, 0
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False):
        count += batch.num_rows
        size_bytes += batch.nbytes
        if count > MOST_ROWS or size_bytes > MOST_BYTES:
            raise form.error(
                f"{source}: more than {MOST_ROWS:,} rows or {MOST_BYTES >> 20} MiB, which no "
                f"{form.what} has; restore it or {form.again}"
            )
        batches.append(batch)
    return pa.Table.from_batches(batches, schema=file.schema_arrow)


def first_line(error: Exception) -> str:
    """Return the first line of an error's text."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _schema(columns: tuple[tuple[str, str, bool], ...]) -> pa.Schema:
    pa, _ = _pyarrow()
    kinds = {
        "string": pa.string(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "bool": pa.bool_(),
        "list": pa.list_(pa.field("element", pa.float64(), nullable=False)),
        "counts": pa.list_(pa.field("element", pa.int64(), nullable=False)),
    }
    return pa.schema([pa.field(name, kinds[kind], nullable=null) for name, kind, null in columns])


def _read_metadata(form: ParquetForm, raw: Mapping[bytes, bytes], source: str) -> dict[str, Any]:
    try:
        metadata = {
            name.decode().removeprefix("tuccl."): json.loads(value)
            for name, value in raw.items()
            if name.startswith(b"tuccl.")
        }
    except (ValueError, RecursionError) as error:
        raise form.error(
            f"{source}: its metadata is damaged ({first_line(error)}); restore it or {form.again}"
        ) from error
    version = metadata.get(form.version_key)
    if version is None:
        raise form.error(f"{source}: a Parquet file, but {form.missing}")
    if type(version) is not int or version != form.version:
        raise form.error(
            f"{source}: {form.version_called} {version}, this release reads {form.version}; "
            f"{form.again} or use the release that wrote it"
        )
    return metadata


def _check_columns(form: ParquetForm, schema: pa.Schema, source: str) -> None:
    for wanted in _schema(form.columns + form.optional_columns):
        if wanted.name in schema.names:
            found = schema.field(wanted.name).type
            if found != wanted.type:
                raise form.error(
                    f"{source}: column {wanted.name} is {found} instead of {wanted.type}; "
                    f"restore it or {form.again}"
                )
        elif wanted.name not in (name for name, _, _ in form.optional_columns):
            raise form.error(
                f"{source}: column {wanted.name} is missing; restore it or {form.again}"
            )
