import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import COLLECTIVES
from lookup_tables.parquet_form import MOST_ROWS
from lookup_tables.provenance import Provenance
from lookup_tables.table import NcclProtocol, Shape
from tests.tuccl.measuring.records.small_record import FAST, machine, rows, small_record
from tuccl.errors import InputFileError, WorkspaceError
from tuccl.measuring.records.record import make_record, order_of
from tuccl.measuring.records.record_file import (
    read_record,
    record_from_parquet_bytes,
    record_to_parquet_bytes,
    write_record,
)
from tuccl.search.trials.backend import JobCall
from tuccl.search.trials.config import Config, Task
from tuccl.search.trials.placement import Placement
from tuccl.search.trials.timing import Timing
from tuccl.workspace.measurement_lines import Answer, Recorded, RecordedJob

GOLDEN = Path(__file__).parent / "golden" / "record_schema.json"
TIMES = st.floats(min_value=1e-3, max_value=1e9)
COUNTS = st.integers(0, 2**40)
CONFIGS = st.builds(
    Config,
    st.sampled_from(
        ["ring", "tree", "pat", "schedule:0123456789abcdef", "phases:fedcba9876543210"]
    ),
    st.sampled_from([protocol.value for protocol in NcclProtocol]),
    COUNTS, COUNTS, COUNTS, COUNTS,
    st.dictionaries(
        st.sampled_from(["NCCL_A", "NCCL_B_1"]), st.text("aZ09_.,=:/", min_size=1, max_size=9)
    ).map(lambda pairs: tuple(sorted(pairs.items()))),
).flatmap(
    lambda config: st.sampled_from([0] if config.is_schedule else [0, 1 << 15, 1 << 19]).map(
        lambda size: replace(config, chunk_bytes=size)
    )
)  # fmt: skip
TASKS = st.builds(
    Task,
    st.sampled_from(COLLECTIVES),
    st.integers(1, 2**46),
    st.sampled_from([Shape(2, 1, 2), Shape(4, 2, 2), Shape(3, 2, 0)]),
    st.sampled_from([Placement(), Placement(1, (0,)), Placement(4, (1, 12))]),
)
SECONDS = st.floats(min_value=0.0, max_value=1e6)


@st.composite
def recorded(draw: st.DrawFn) -> Recorded:
    """A row whose requests are unknown, or two requests, the second of which was cut short."""
    samples = draw(st.lists(TIMES, min_size=2, max_size=6))
    row = Recorded(draw(TASKS), draw(CONFIGS), tuple(samples), failed=draw(st.text(max_size=30)))
    row = replace(row, failed_check=draw(st.booleans()))
    if draw(st.booleans()):
        return replace(row, unasked_s=draw(SECONDS))
    answers = Answer(1, 1, draw(SECONDS), draw(SECONDS)), Answer(9, len(samples), 0.5, 2.0)
    return replace(row, answers=answers, failed_s=draw(SECONDS) if row.failed else 0.0)


def schema_text(data: bytes) -> str:
    """The schema that readers in other languages rely on."""
    schema = pq.read_schema(io.BytesIO(data))
    columns = [[field.name, str(field.type), field.nullable] for field in schema]
    metadata = {name.decode(): json.loads(value) for name, value in schema.metadata.items()}
    metadata["tuccl.topology"] = sorted(json.loads(metadata["tuccl.topology"]))
    return json.dumps({"columns": columns, "metadata": metadata}, indent=1, sort_keys=True) + "\n"


def test_the_schema_is_the_one_that_is_documented() -> None:
    assert schema_text(record_to_parquet_bytes(small_record())) == GOLDEN.read_text("utf-8")


def test_pandas_reads_the_rows_as_they_are(tmp_path: Path) -> None:
    write_record(tmp_path / "r.parquet", small_record())
    frame = pd.read_parquet(tmp_path / "r.parquet")
    row = frame[(frame["protocol"] == "LL") & (frame["size_bytes"] == 1024)].iloc[0]
    assert list(row["samples_us"]) == [8.0, 8.5, 8.25]
    assert row["seconds"] == pytest.approx(24.75e-6 * 20)
    assert pd.isna(row["failed"])
    assert sorted(frame["failed"].dropna().unique()) == ["hung for 5 s"]


@pytest.mark.long
@given(rows=st.lists(recorded(), max_size=8, unique_by=order_of))
def test_what_is_written_is_read_again(rows: list[Recorded]) -> None:
    timing = Timing(((4096, 7),), 3, graph=False, in_place=True, data_type="float32")
    record = make_record(
        machine(), Shape(2, 1, 2), Provenance("sockets", tuccl_version="0.1"), timing, rows
    )
    data = record_to_parquet_bytes(record)
    assert record_from_parquet_bytes(data, "r") == record
    assert record_to_parquet_bytes(record) == data


def test_jobs_are_kept_and_those_of_a_damaged_record_refused() -> None:
    record = small_record()
    times_us = tuple((JobCall(task, us), 8.0) for task in record.tasks for us in (0.0, 16.0))
    jobs = RecordedJob("", 0, times_us, 3.1), RecordedJob("00aa", 0, (), 1.0, "it hung")
    held = replace(record, of_run=replace(record.of_run, jobs=jobs))
    data = record_to_parquet_bytes(held)
    assert record_from_parquet_bytes(data, "r").of_run.jobs == jobs
    assert held.digest != record.digest
    wrong = RecordedJob("", 0, ((JobCall(record.tasks[0]), -8.0),), 3.1)
    broken = replace(record, of_run=replace(record.of_run, jobs=(wrong,)))
    with pytest.raises(InputFileError, match="a sample of -8"):
        record_from_parquet_bytes(record_to_parquet_bytes(broken), "r")


def rewritten(change: Callable[[pa.Table], pa.Table]) -> bytes:
    table = change(pq.read_table(io.BytesIO(record_to_parquet_bytes(small_record()))))
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def with_metadata(name: str, value: object) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        metadata = {**table.schema.metadata, f"tuccl.{name}".encode(): json.dumps(value).encode()}
        return table.replace_schema_metadata(metadata)

    return change


def with_samples(samples: list[float | None] | None) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        column = table.column("samples_us").to_pylist()
        column[0] = samples
        place = table.schema.get_field_index("samples_us")
        kind = table.schema.field("samples_us").type
        if samples is None or None in samples:
            kind = pa.list_(pa.float64())
        return table.set_column(place, pa.field("samples_us", kind), pa.array(column, kind))

    return change


def test_every_truncation_is_one_clear_error() -> None:
    data = record_to_parquet_bytes(small_record())
    for size in [0, 1, 4, len(data) // 2, len(data) - 1]:
        with pytest.raises(InputFileError, match="r: not a readable Parquet file") as caught:
            record_from_parquet_bytes(data[:size], "r")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        with_metadata("record_version", 99),
        with_metadata("shape", {"ranks": 4}),
        with_metadata("shape", 7),
        with_metadata("shape", {"ranks": 4, "nodes": None, "ranks_per_node": None}),
        with_metadata("shape", {"ranks": 4, "nodes": 5, "ranks_per_node": 0}),
        with_metadata("timing", {}),
        with_metadata("timing", {"calls_up_to": [[1, 0]]}),
        with_metadata("timing", {"calls_up_to": [], "in_place": [1]}),
        with_metadata("topology", "{}"),
        with_metadata("topology", None),
        with_metadata("fingerprint", "f00"),
        lambda table: table.drop_columns(["min_nchannels"]),
        lambda table: table.replace_schema_metadata(None),
        with_samples([float("nan")]),
        with_samples([-2.0]),
        with_samples([]),
        with_samples([None]),
        with_samples(None),
    ],
)
def test_what_is_wrong_is_one_clear_line(change: Callable[[pa.Table], pa.Table]) -> None:
    with pytest.raises(InputFileError) as caught:
        record_from_parquet_bytes(rewritten(change), "r.parquet")
    text = str(caught.value)
    assert text.startswith("r.parquet: ")
    assert "\n" not in text


def test_a_table_is_no_record() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"operation": ["all_reduce"]}), out)
    with pytest.raises(InputFileError, match="no record of measurements"):
        record_from_parquet_bytes(out.getvalue(), "r")


def test_a_file_that_is_not_there_and_one_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="No such file"):
        read_record(tmp_path / "nowhere.parquet")
    (tmp_path / "taken").write_text("")
    with pytest.raises(WorkspaceError, match="cannot write"):
        write_record(tmp_path / "taken" / "r.parquet", small_record())


def test_a_record_of_a_part_of_the_machine_keeps_its_shape() -> None:
    shape = Shape(2, 1, 2)
    pair = replace(small_record(), shape=shape, rows=tuple(rows(shape=shape)))
    again = record_from_parquet_bytes(record_to_parquet_bytes(pair), "r")
    assert again.tasks[0].shape == Shape(2, 1, 2)
    assert FAST in again.configs(again.tasks[0])


def test_a_link_to_a_missing_device_makes_a_record_invalid() -> None:
    """One flipped bit in a device's name, which only the check of the structure finds."""
    table = pq.read_table(io.BytesIO(record_to_parquet_bytes(small_record())))
    metadata = dict(table.schema.metadata)
    topology = json.loads(json.loads(metadata[b"tuccl.topology"]))
    topology["links"][0]["dst"] = "n0/none"
    metadata[b"tuccl.topology"] = json.dumps(json.dumps(topology)).encode()
    damaged = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), damaged)
    with pytest.raises(InputFileError, match="there is no device 'n0/none'"):
        record_from_parquet_bytes(damaged.getvalue(), "record")


@pytest.mark.long
def test_a_small_file_of_millions_of_rows_is_refused_before_it_fills_memory() -> None:
    few = pq.read_table(io.BytesIO(record_to_parquet_bytes(small_record())))
    many = pa.concat_tables([few] * (MOST_ROWS // few.num_rows + 1))
    out = io.BytesIO()
    pq.write_table(many, out, compression="zstd", write_page_checksum=True)
    with pytest.raises(InputFileError, match=r"^r: more than 400,000 rows or 256 MiB"):
        record_from_parquet_bytes(out.getvalue(), "r")
