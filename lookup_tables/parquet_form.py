"""Parquet files of flat rows whose metadata says what they are: of tables, and of records.

What belongs to a whole file travels as JSON in the schema metadata under keys that start with
`tuccl.`, the version of its form among it. A file is refused before its rows are read when it is of
another version or has other columns. pyarrow is imported when first needed, because it costs more
than everything else here; `require_pyarrow` finds out before long work whether it serves.
"""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lookup_tables.errors import PyarrowError, TableFileError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ParquetForm:
    """What the files of a kind have in common."""

    what: str
    """As messages call the content: `table`."""
    version_key: str
    version_called: str
    version: int
    """Version that is written."""
    columns: tuple[tuple[str, str, bool], ...]
    """Name, Arrow type (`list` is of float64) and whether it may be null."""
    compression: str
    missing: str
    """What a Parquet file without a version is not, and how to make one."""
    again: str
    """How the user makes the content anew: `tune again`."""
    error: type[Exception]
    optional_columns: tuple[tuple[str, str, bool], ...] = ()
    """Stand in a file only where a row has a value."""
    older_columns: Mapping[int, tuple[tuple[str, str, bool], ...]] = field(default_factory=dict)
    """By version that is read as well: its columns."""

    def columns_of(self, version: int) -> tuple[tuple[str, str, bool], ...]:
        """The columns of a version that is read."""
        return self.columns if version == self.version else self.older_columns[version]

    def invalid(self, source: str, reason: Exception) -> Exception:
        """The error for rows or metadata of which no content can be made."""
        return self.error(
            f"{source}: holds no valid {self.what} ({first_line(reason)}); "
            f"restore it or {self.again}"
        )


def parquet_bytes(
    form: ParquetForm, metadata: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> bytes:
    """A Parquet file; the same values and pyarrow release give the same bytes.

    Args:
        form: Of the file.
        metadata: JSON by name, without prefix and version.
        rows: Values by column; a column that is missing is null.

    Raises:
        PyarrowError: pyarrow cannot be imported.
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
    """Metadata by name without its prefix, and the rows, complete but for optional columns.

    Args:
        form: Of the file.
        data: The whole file.
        source: Its name, for messages.

    Raises:
        form.error: Not Parquet, damaged, of another version, with other columns, or null where
            nothing may be null.
        PyarrowError: pyarrow cannot be imported.
    """
    with _readable(form, source):
        file = _opened(data)
        metadata = _read_metadata(form, file.schema_arrow.metadata or {}, source)
        columns = form.columns_of(metadata[form.version_key])
        _check_columns(form, columns, file.schema_arrow, source)
        rows = file.read(use_threads=False)
    for name, _, may_be_null in columns:
        if rows.column(name).null_count and not may_be_null:
            raise form.invalid(source, ValueError(f"column {name} is empty in a row"))
    return metadata, rows.to_pylist()


def read_parquet_metadata(form: ParquetForm, data: bytes, source: str) -> dict[str, Any]:
    """The metadata alone, by name without its prefix; neither columns nor rows are looked at.

    Raises:
        form.error: Not Parquet, damaged, or of another version.
        PyarrowError: pyarrow cannot be imported.
    """
    with _readable(form, source):
        return _read_metadata(form, _opened(data).schema_arrow.metadata or {}, source)


def require_pyarrow() -> None:
    """Write and read a row in memory: what the end of a long run needs, found out before it.

    Raises:
        PyarrowError: pyarrow cannot be imported, lacks Parquet, or lacks a compression in use.
    """
    rows = [{"number": 1, "text": "a", "truth": True, "figures": [0.5]}]
    try:
        for form in _TRIALS:
            if read_parquet(form, parquet_bytes(form, {}, rows), form.what)[1] != rows:
                raise ValueError("it read another row than it had written")
    except PyarrowError:
        raise
    except Exception as error:  # It fails in any way, too.
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
        ),
        compression=compression,
        missing="",
        again="",
        error=TableFileError,
    )
    for compression in ("snappy", "zstd")
)
"""Forms that have every type and every compression of those that are in use."""


def _pyarrow() -> tuple[Any, Any]:
    """`pyarrow` and `pyarrow.parquet`."""
    try:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415
    except Exception as error:  # Of another numpy, half installed: it fails in any way.
        raise _unusable(error) from error
    return pa, pq


def _unusable(error: Exception) -> PyarrowError:
    return PyarrowError(
        f"pyarrow, which tables are written with, cannot be used ({type(error).__name__}: "
        f"{first_line(error)}); mend it with `{shlex.quote(sys.executable)} -m pip install "
        "--force-reinstall pyarrow`"
    )


def _opened(data: bytes) -> Any:
    """A file as `pyarrow.parquet` sees it.

    Without Arrow's threads: a short command that ends while they start is aborted ("terminate
    called without an active exception") in one run of twenty.
    """
    pa, pq = _pyarrow()
    return pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True, pre_buffer=False)


@contextmanager
def _readable(form: ParquetForm, source: str) -> Iterator[None]:
    """Turn what Arrow raises about a file into the form's error."""
    pa, _ = _pyarrow()
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise form.error(
            f"{source}: not a readable Parquet file ({first_line(error)}); "
            f"restore it or {form.again}"
        ) from error


def first_line(error: Exception) -> str:
    """What an error says, for a message of one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _schema(columns: tuple[tuple[str, str, bool], ...]) -> pa.Schema:
    pa, _ = _pyarrow()
    kinds = {
        "string": pa.string(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "bool": pa.bool_(),
        "list": pa.list_(pa.field("element", pa.float64(), nullable=False)),
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
    if type(version) is not int or version not in (*form.older_columns, form.version):
        older = ", ".join(map(str, form.older_columns))
        known = f"{older} and {form.version}" if older else str(form.version)
        raise form.error(
            f"{source}: {form.version_called} {version}, this release reads {known}; "
            f"{form.again} or use the release that wrote it"
        )
    return metadata


def _check_columns(
    form: ParquetForm,
    columns: tuple[tuple[str, str, bool], ...],
    schema: pa.Schema,
    source: str,
) -> None:
    for wanted in _schema(columns + form.optional_columns):
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
