import io
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lookup_tables.errors import TableFileError
from lookup_tables.store import table_from_parquet_bytes, table_to_parquet_bytes
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol, Operation
from tests.lookup_tables.tables import make_entry, make_table, random_table

RING_LL = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 2)


def no_programs(xml: str) -> bytes:
    raise AssertionError(f"compiled {xml}, which came with its program")


def rewritten(data: bytes, change: object) -> bytes:
    table = pq.read_table(io.BytesIO(data))
    out = io.BytesIO()
    pq.write_table(change(table), out)  # type: ignore[operator]
    return out.getvalue()


@pytest.mark.parametrize("seed", range(4))
def test_a_table_survives_the_way_through_parquet(seed: int) -> None:
    table = random_table(seed)
    data = table_to_parquet_bytes(table)
    assert table_from_parquet_bytes(data, "t", no_programs) == table
    assert table_to_parquet_bytes(table) == data


def test_an_empty_table_keeps_its_types() -> None:
    table = make_table([])
    assert table_from_parquet_bytes(table_to_parquet_bytes(table), "t", no_programs) == table


def test_pandas_shows_one_readable_row_per_entry() -> None:
    data = table_to_parquet_bytes(
        make_table([make_entry(Operation.ALL_REDUCE, 1024, 4095, RING_LL)])
    )
    frame = pd.read_parquet(io.BytesIO(data))
    assert len(frame) == 1
    row = frame.iloc[0]
    assert (row["operation"], row["min_bytes"], row["max_bytes"]) == ("all_reduce", 1024, 4095)
    assert (row["builtin_algorithm"], row["builtin_protocol"]) == ("ring", "LL")
    assert row["default_time_us"] / row["time_us"] == pytest.approx(1.379, abs=1e-3)
    assert pd.isna(row["schedule"])


def test_every_truncation_is_one_clear_error() -> None:
    data = table_to_parquet_bytes(random_table(1, 1))
    for size in [0, 1, 4, len(data) // 2, len(data) - 1]:
        with pytest.raises(TableFileError, match="t: not a readable Parquet file") as caught:
            table_from_parquet_bytes(data[:size], "t", no_programs)
        assert "\n" not in str(caught.value)


def test_parquet_of_someone_else_is_refused() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), out)
    with pytest.raises(TableFileError, match="no TuCCL table"):
        table_from_parquet_bytes(out.getvalue(), "t", no_programs)


def test_unknown_version_missing_column_wrong_type_bad_value() -> None:
    good = table_to_parquet_bytes(random_table(1, 1))

    def newer(table: pa.Table) -> pa.Table:
        metadata = dict(table.schema.metadata) | {b"tuccl.format_version": json.dumps(9).encode()}
        return table.replace_schema_metadata(metadata)

    def damaged_metadata(table: pa.Table) -> pa.Table:
        metadata = dict(table.schema.metadata) | {b"tuccl.profile": b"{"}
        return table.replace_schema_metadata(metadata)

    def deep_metadata(table: pa.Table) -> pa.Table:
        metadata = dict(table.schema.metadata) | {b"tuccl.profile": b"[" * 100_000}
        return table.replace_schema_metadata(metadata)

    def narrow(table: pa.Table) -> pa.Table:
        column = table.column("samples").cast(pa.int32())
        return table.set_column(table.schema.get_field_index("samples"), "samples", column)

    def other_operation(table: pa.Table) -> pa.Table:
        column = pa.array(["all_shuffle"] * table.num_rows)
        return table.set_column(0, "operation", column)

    def null_size(table: pa.Table) -> pa.Table:
        column = pa.array([None] * table.num_rows, pa.int64())
        return table.set_column(1, "min_bytes", column)

    cases = [
        (newer, "table format 9, this release reads 1 and 2"),
        (damaged_metadata, "metadata is damaged"),
        (deep_metadata, "metadata is damaged"),
        (lambda table: table.drop_columns(["spread"]), "column spread is missing"),
        (narrow, "column samples is int32 instead of int64"),
        (other_operation, "all_shuffle"),
        (null_size, r"holds no valid table \(column min_bytes is empty in a row\)"),
    ]
    for change, message in cases:
        with pytest.raises(TableFileError, match=message) as caught:
            table_from_parquet_bytes(rewritten(good, change), "t", no_programs)
        assert "\n" not in str(caught.value)


def test_additional_columns_are_ignored() -> None:
    table = random_table(2, 1)
    data = rewritten(
        table_to_parquet_bytes(table),
        lambda arrow: arrow.append_column("note", pa.array(["x"] * arrow.num_rows)),
    )
    assert table_from_parquet_bytes(data, "t", no_programs) == table


def test_reading_starts_no_threads_that_could_abort_a_short_command() -> None:
    script = """
import os, sys
import pyarrow.parquet
from lookup_tables.store import table_from_parquet_bytes
before = len(os.listdir("/proc/self/task"))
table_from_parquet_bytes(sys.stdin.buffer.read(), "table", lambda xml: b"")
sys.exit(len(os.listdir("/proc/self/task")) - before)
"""
    root = Path(__file__).resolve().parents[2]
    data = table_to_parquet_bytes(random_table(1))
    done = subprocess.run([sys.executable, "-c", script], input=data, cwd=root, check=False)
    assert done.returncode == 0
