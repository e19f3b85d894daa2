import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from lookup_tables.confirmation import Confirmation, Estimator, JobGain, NoStarts, Reference
from lookup_tables.provenance import NcclVersion, Provenance
from lookup_tables.store import table_from_parquet_bytes, table_to_parquet_bytes
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol, Setting, Shape
from tests.lookup_tables.tables import (
    SHAPES,
    invariant_table,
    make_entry,
    make_table,
    random_placements,
    random_table,
)
from tuccl.errors import TableError

PRINTABLE = st.text(max_size=20).filter(lambda text: bool(text) and text.isprintable())
RING_LL = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 2)


def rewritten(data: bytes, change: object) -> bytes:
    table = pq.read_table(io.BytesIO(data))
    out = io.BytesIO()
    pq.write_table(change(table), out)  # type: ignore[operator]
    return out.getvalue()


@pytest.mark.parametrize("seed", range(4))
def test_a_table_survives_the_way_through_parquet(seed: int) -> None:
    table = random_table(seed)
    data = table_to_parquet_bytes(table)
    assert table_from_parquet_bytes(data, "t") == table
    assert table_to_parquet_bytes(table) == data


PROVENANCES = st.builds(
    Provenance,
    st.sampled_from(["nccl", "nccl,executor", "simulated", "sockets", "my.module:Engine"]),
    st.none() | st.builds(NcclVersion, *[st.integers(0, 99)] * 3),
    st.none() | PRINTABLE,
    st.none() | PRINTABLE,
    st.booleans(),
    PRINTABLE,
)
RATIOS = st.floats(min_value=1e-6, max_value=1e6)
CONFIRMATIONS = st.builds(
    lambda reference, estimator, ratios, confidence, starts: Confirmation(
        reference, estimator, ratios[1], ratios[0], ratios[2], confidence, starts
    ),
    st.sampled_from([Reference.STOCK, Reference.PROFILE]),
    st.sampled_from(list(Estimator)),
    st.lists(RATIOS, min_size=3, max_size=3).map(sorted),
    st.floats(min_value=0.5, max_value=0.999),
    st.integers(1, 2**40) | st.sampled_from(list(NoStarts)),
)


JOB_GAINS = st.builds(JobGain, RATIOS, RATIOS, RATIOS, RATIOS, st.integers(1, 9))


@pytest.mark.long
@given(
    made=st.none() | PROVENANCES,
    shown=st.none() | CONFIRMATIONS,
    in_job=st.none() | JOB_GAINS,
    samples=st.integers(0, 2**40),
)
def test_what_an_entry_says_of_itself_is_read_as_it_was_written(
    made: Provenance | None, shown: Confirmation | None, in_job: JobGain | None, samples: int
) -> None:
    entry = make_entry(Collective.ALL_REDUCE, 1024, 4095, RING_LL)
    entry = replace(entry, provenance=made, confirmation=shown, in_job=in_job, samples=samples)
    data = table_to_parquet_bytes(make_table([entry]))
    assert table_from_parquet_bytes(data, "t").entries == (entry,)


def test_pandas_shows_a_readable_row_per_entry() -> None:
    table = make_table([make_entry(Collective.ALL_REDUCE, 1024, 4095, RING_LL)])
    frame = pd.read_parquet(io.BytesIO(table_to_parquet_bytes(table)))
    row = frame.iloc[0].to_dict()
    assert {name: row[name] for name in ("operation", "min_bytes", "max_bytes")} == {
        "operation": "all_reduce", "min_bytes": 1024, "max_bytes": 4095,
    }  # fmt: skip
    assert (row["builtin_algorithm"], row["builtin_protocol"]) == ("ring", "LL")
    assert row["default_time_us"] / row["time_us"] == pytest.approx(1.379, abs=1e-3)
    assert pd.isna(row["schedule"])
    assert dict(list(row.items())[-20:-7]) == {
        "backend": "nccl,executor",
        "nccl_version": "2.28.9",
        "tuccl_version": "0.1.0",
        "machine": "two nodes",
        "replayed": False,
        "details": "CUDA 12.8, NVIDIA H200",
        "reference": "profile",
        "estimator": "mean_over_starts",
        "ratio": 1.107,
        "ratio_low": 1.087,
        "ratio_high": 1.13,
        "confidence": 0.99,
        "starts": 3,
    }
    assert (list(row)[-7], list(row)[-1]) == ("no_starts", "placement")
    assert pd.isna(list(row.values())[-7:]).all()


def test_a_row_that_contradicts_itself_is_refused() -> None:
    good = table_to_parquet_bytes(random_table(1, 1))

    def with_column(name: str, values: pa.Array) -> bytes:
        def change(table: pa.Table) -> pa.Table:
            return table.set_column(table.schema.get_field_index(name), name, values(table))

        return rewritten(good, change)

    cases = [
        ("no_starts", lambda t: pa.array(["modelled"] * t.num_rows), "its starts or why"),
        ("starts", lambda t: pa.nulls(t.num_rows, pa.int64()), "its starts or why"),
        ("nccl_version", lambda t: pa.array(["2.28"] * t.num_rows), "not a version of NCCL"),
        ("backend", lambda t: pa.array(["two words"] * t.num_rows), "not the name of a backend"),
        ("reference", lambda t: pa.array(["luck"] * t.num_rows), "luck"),
        ("ratio_low", lambda t: pa.array([1.2] * t.num_rows), "outside its own bounds"),
    ]
    for name, values, message in cases:
        with pytest.raises(TableError, match=message) as caught:
            table_from_parquet_bytes(with_column(name, values), "t")
        assert "\n" not in str(caught.value)


def test_an_empty_table_keeps_its_types() -> None:
    table = make_table([])
    assert table_from_parquet_bytes(table_to_parquet_bytes(table), "t") == table


def test_every_truncation_is_one_clear_error() -> None:
    data = table_to_parquet_bytes(random_table(1, 1))
    for size in [0, 1, 4, len(data) // 2, len(data) - 1]:
        with pytest.raises(TableError, match="t: not a readable Parquet file") as caught:
            table_from_parquet_bytes(data[:size], "t")
        assert "\n" not in str(caught.value)


def test_parquet_of_someone_else_is_refused() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), out)
    with pytest.raises(TableError, match="no TuCCL table"):
        table_from_parquet_bytes(out.getvalue(), "t")


def test_unknown_version_missing_column_wrong_type_bad_value() -> None:
    good = table_to_parquet_bytes(random_table(1, 1))

    def newer(table: pa.Table) -> pa.Table:
        metadata = dict(table.schema.metadata) | {b"tuccl.format_version": json.dumps(10).encode()}
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
        (
            newer,
            "table format 10, this release reads 9; tune again or use the release",
        ),
        (damaged_metadata, "metadata is damaged"),
        (deep_metadata, "metadata is damaged"),
        (lambda table: table.drop_columns(["spread"]), "column spread is missing"),
        (narrow, "column samples is int32 instead of int64"),
        (other_operation, "all_shuffle"),
        (null_size, r"holds no valid table \(column min_bytes is empty in a row\)"),
    ]
    for change, message in cases:
        with pytest.raises(TableError, match=message) as caught:
            table_from_parquet_bytes(rewritten(good, change), "t")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("profile", {"NCCL_BUFFSIZE": None}),
        ("profile", [5]),
        ("topology_name", 5),
        ("fingerprint", ["a"]),
        ("gpu_models", [None]),
        ("schedules", [["5a5a", None, "", ""]]),
        ("schedules", [["5a5a", "ring"]]),
    ],
)
def test_metadata_of_another_type_are_refused(name: str, value: object) -> None:
    def with_value(table: pa.Table) -> pa.Table:
        metadata = dict(table.schema.metadata) | {f"tuccl.{name}".encode(): json.dumps(value)}
        return table.replace_schema_metadata(metadata)

    data = rewritten(table_to_parquet_bytes(random_table(1)), with_value)
    with pytest.raises(TableError, match=r"^t\.parquet"):
        table_from_parquet_bytes(data, "t.parquet")


def test_additional_columns_are_ignored() -> None:
    table = random_table(2, 1)
    data = rewritten(
        table_to_parquet_bytes(table),
        lambda arrow: arrow.append_column("note", pa.array(["x"] * arrow.num_rows)),
    )
    assert table_from_parquet_bytes(data, "t") == table


@pytest.mark.long
def test_reading_starts_no_threads_that_could_abort_a_short_command() -> None:
    script = """
import os, sys
import pyarrow.parquet
from lookup_tables.store import table_from_parquet_bytes
before = len(os.listdir("/proc/self/task"))
table_from_parquet_bytes(sys.stdin.buffer.read(), "table")
sys.exit(len(os.listdir("/proc/self/task")) - before)
"""
    root = Path(__file__).resolve().parents[2]
    data = table_to_parquet_bytes(random_table(1))
    done = subprocess.run([sys.executable, "-c", script], input=data, cwd=root, check=False)
    assert done.returncode == 0


def test_placements_come_back() -> None:
    plain = random_table(4, 2)
    placed = replace(plain, placements=random_placements(4, SHAPES))
    data = table_to_parquet_bytes(placed)
    assert table_from_parquet_bytes(data, "t") == placed
    rows = pq.read_table(io.BytesIO(data)).to_pylist()
    assert len(rows) == len(plain.entries) + sum(len(own.entries) for own in placed.placements)


@pytest.mark.parametrize(
    "wrong", [{"siblings": (0, 9)}, {"siblings": ()}, {"siblings": (1, 0)}, {"stride": 0}]
)
def test_siblings_that_no_machine_has_are_refused(wrong: dict[str, Any]) -> None:
    first, *others = random_placements(4, SHAPES)
    assert first.timed is not None
    of_no_machine = replace(first, timed=replace(first.timed, **wrong))
    placed = replace(random_table(4, 2), placements=(of_no_machine, *others))
    with pytest.raises(TableError, match="no machine has its siblings"):
        table_to_parquet_bytes(placed)


def test_entries_of_a_placement_that_the_table_lacks_are_refused() -> None:
    placed = replace(random_table(4, 2), placements=random_placements(4, SHAPES))

    def without_placements(table: pa.Table) -> pa.Table:
        metadata = dict(table.schema.metadata) | {b"tuccl.placements": b"[]"}
        return table.replace_schema_metadata(metadata)

    with pytest.raises(TableError, match="of a placement that the table lacks"):
        table_from_parquet_bytes(rewritten(table_to_parquet_bytes(placed), without_placements), "t")


def test_the_order_of_sums_comes_back() -> None:
    table = invariant_table()
    assert table_from_parquet_bytes(table_to_parquet_bytes(table), "t") == table


def test_settings_of_shapes_come_back() -> None:
    settings = (Setting(Shape(2, 1, 2), "NCCL_MIN_CTAS"), Setting(Shape(4, 2, 2), "NCCL_MIN_CTAS"))
    table = replace(random_table(1), profile={"NCCL_MIN_CTAS": "32"}, settings=settings)
    assert table_from_parquet_bytes(table_to_parquet_bytes(table), "t") == table
